"""Tests of what carries a run on."""
