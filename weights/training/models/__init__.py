"""Models of a training: modules in memory, adapters, teachers, and predictions of models."""
