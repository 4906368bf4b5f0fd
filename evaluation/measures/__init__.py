"""Measures of a model's answers and of text, and their intervals."""
