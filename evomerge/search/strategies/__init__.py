"""Search strategies, one algorithm a file. Pure."""
