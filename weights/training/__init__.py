"""Training of models, deterministic from its recipe."""
