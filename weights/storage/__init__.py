"""Weights and inputs on disk: weight cache, model copies, shared artifact store, encryption."""
