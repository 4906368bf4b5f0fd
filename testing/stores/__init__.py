"""The contract of event stores, as tests that every backend passes."""
