"""What leaves a run: the champion, archives, Parquet, Weights & Biases, chain heads."""
