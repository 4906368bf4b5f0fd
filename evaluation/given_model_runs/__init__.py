"""Runs that train from one given model, on text cut by its tokenizer: what their kinds share."""
