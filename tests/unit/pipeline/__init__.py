"""What a pipeline shows."""
