"""Tests of ternary weights."""
