"""The work of a student run: prepare text, draw weights, train, measure, write folders."""
