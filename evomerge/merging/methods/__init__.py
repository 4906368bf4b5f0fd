"""Merge techniques: small pure functions of float32 tensors, one algorithm a file.

Every function takes the inputs of *one* tensor and returns the merged one. No function knows of
files, models or recipes; `evomerge.merging.builder` puts the functions together.

Each file has a `reference`: the technique in plain torch, float64 and whole tensors, in the order of
the paper. `prepare` returns the fast form. tests/unit/evomerge/merging/test_references.py
compares the two.
"""
