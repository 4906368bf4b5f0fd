"""Trainings over several processes: shared steps, sharded weights."""
