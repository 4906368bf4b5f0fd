"""Model folders on disk: read safely, checked before anything is built from them, written whole."""
