"""Phase 8: a model in few bytes, at a rate chosen from a measured curve."""
