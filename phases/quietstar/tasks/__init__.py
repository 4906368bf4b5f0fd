"""The work of a quietstar run: prepare text, find hard tokens, train, measure, write folders."""
