"""Speed and crash tests of the log."""
