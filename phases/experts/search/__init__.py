"""The search over mixtures: their space, the techniques it begins with, and its generations. Pure."""
