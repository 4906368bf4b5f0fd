"""Evaluation: items of data, backends that run a model, and measures of its answers."""
