"""A kind of run without torch, for tests of everything that is generic."""
