"""The work of a cognate run: text, training, measuring, folders, verification."""
