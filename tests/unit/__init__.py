"""Unit tests: no model, no process, no socket."""
