"""The work of a bitnet run: prepare text, train, round, measure, write folders."""
