"""Baking engine of phase 6: a prompt becomes weights."""
