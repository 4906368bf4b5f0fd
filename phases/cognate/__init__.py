"""Phase 1 in its smallest honest form: trains a common base and three specialists."""
