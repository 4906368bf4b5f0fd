"""Checks of every request: who asks, what they may, how often, and how many may wait."""
