"""Fitness: from outcomes to one number, paired comparison, early stopping. Pure."""
