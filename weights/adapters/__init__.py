"""LoRA adapters as pairs of matrices: merged with each other, extracted from models, written."""
