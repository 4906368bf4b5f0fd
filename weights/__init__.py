"""Weights: models as files and tensors. Knows no run and no measure."""
