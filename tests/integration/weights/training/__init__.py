"""Tests of weights/training."""
