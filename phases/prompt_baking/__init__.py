"""Phase 6: a prompt becomes weights."""
