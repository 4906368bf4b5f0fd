"""Conversations with a model, reply by reply: in this process, or a GGUF file in llama.cpp."""
