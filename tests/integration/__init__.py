"""Integration tests: one real thing each, such as a database, a toy model or a client of the API."""
