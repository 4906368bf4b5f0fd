"""Processes beside the server: for what opens models and data, and for what takes long."""
