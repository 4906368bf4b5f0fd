"""Backends: models in this process or behind an OpenAI-compatible server."""
