"""Panels of a pipeline: the strip of its phases, quality and size, the family of its models."""
