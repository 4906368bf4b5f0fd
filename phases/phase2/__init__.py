"""Phase 2 by the third source document's path; the phase itself is `evomerge/`."""
