"""Phase 7: experts that scale a model's singular values, and a search over mixtures of them."""
