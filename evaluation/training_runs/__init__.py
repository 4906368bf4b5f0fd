"""Runs that train models on text and measure them: what their kinds have in common."""
