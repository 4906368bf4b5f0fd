"""Fitness as one number from outcomes, paired comparison and early stopping, all pure functions."""
