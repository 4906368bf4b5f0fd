"""Mergeability: what can be told of a merge of models before a search for it begins."""
