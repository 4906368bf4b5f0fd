"""Phase 4: a model with ternary weights (BitNet b1.58), trained and beside its honest alternatives."""
