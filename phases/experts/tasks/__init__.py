"""The work of an experts run: prepare text, train vectors, score mixtures, dispatch, write folders."""
