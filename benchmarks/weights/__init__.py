"""Speed of merging and building."""
