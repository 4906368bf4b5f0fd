"""Weights and inputs on disk: cache, shared artifact store, encryption."""
