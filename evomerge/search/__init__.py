"""Search strategies, one a file. Pure: a strategy sees rankings and recipes and proposes recipes."""
