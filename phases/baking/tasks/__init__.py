"""The work of a baking run: play tasks, propose personas, train, measure, write folders."""
