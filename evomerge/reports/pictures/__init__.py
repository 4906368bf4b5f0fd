"""Pictures of a merging run: plot, family tree, lineage."""
