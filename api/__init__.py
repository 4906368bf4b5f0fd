"""REST, live events and the built dashboard. docs/map.md has a line for every module."""
