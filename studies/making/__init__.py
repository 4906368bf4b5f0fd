"""Making models by their recipes as tasks of a run: what is asked, what is recorded. No torch."""
