"""Phase 3: a model that thinks before each token (Quiet-STaR), beside its honest alternatives."""
