"""Trajectories of a model: contexts cut from text, replies sampled by key, divergences along them."""
