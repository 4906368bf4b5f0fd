"""Doing one task of a run, or one command that needs weights."""
