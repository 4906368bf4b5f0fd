"""Commands of the other phases."""
