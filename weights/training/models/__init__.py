"""Models of a training: modules in memory, adapters, what is read beside the trained model."""
