"""Small models, tensors and tasks to test with."""
