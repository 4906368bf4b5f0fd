"""Testing: worlds, toy models, clusters and servers that tests and benchmarks share."""
