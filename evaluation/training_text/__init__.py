"""Text that a run trains on and is measured on: tokenized once, kept by its content, shared."""
