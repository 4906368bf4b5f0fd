"""Merge techniques: small pure functions of float32 tensors, one algorithm a file.

Every function takes the inputs of *one* tensor and returns the merged one. No function knows of
files, models or recipes; `evomerge.merging.builder` puts the functions together.
"""
