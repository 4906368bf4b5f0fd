"""Servers that tests and benchmarks start on free ports."""
