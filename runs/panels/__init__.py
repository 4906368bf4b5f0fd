"""Head and typed panels that show a run of any kind; thinned for the wire, and as tables."""
