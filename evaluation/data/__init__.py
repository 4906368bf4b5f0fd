"""Data: items, their slices and draws, and their encoding as tokens, without torch."""
