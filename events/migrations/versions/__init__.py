"""One file a revision. A revision that has landed is never edited."""
