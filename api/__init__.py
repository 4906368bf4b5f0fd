"""REST, live events and the built dashboard."""
