"""The work of a curriculum run: make items, train, measure, write folders."""
