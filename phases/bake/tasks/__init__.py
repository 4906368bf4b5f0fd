"""The work of a bake: prepare text, sample, train, measure, write folders."""
