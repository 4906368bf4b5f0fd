"""The result of a merging run: its folder, its verification, rebuilding of its weights."""
