"""Commands of pipelines."""
