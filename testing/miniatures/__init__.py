"""Runs of real kinds in miniature: the machinery is real, trainings take seconds."""
