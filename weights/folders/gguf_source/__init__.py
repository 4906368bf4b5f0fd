"""Models in GGUF files, which llama.cpp reads: checked, and converted into model folders."""
