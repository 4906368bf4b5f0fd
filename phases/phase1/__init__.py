"""Phase 1 by the third source document's path; the phase itself is `phases/cognate/`."""
