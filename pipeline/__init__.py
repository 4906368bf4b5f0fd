"""The pipeline: a run whose tasks are runs, one phase after another, with gates between them."""
