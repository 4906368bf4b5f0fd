"""Tools that a model can call: calculator, table, search, memory, Python, repository."""
