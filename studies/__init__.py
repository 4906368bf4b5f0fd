"""Studies: what all kinds of run that make models and compare them have in common."""
