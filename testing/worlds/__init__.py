"""Runs and homes to test with: invented measurements, real engine."""
