"""Phase 1 in its smallest honest form: a common base and three specialists, trained here."""
