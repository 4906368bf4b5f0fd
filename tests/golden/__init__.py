"""Logs of every schema that ever landed, folded for ever. Never edited; see README.md."""
