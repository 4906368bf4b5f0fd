"""Exports of a run: the champion, archives, Parquet, Weights & Biases, chain heads."""
