"""The work of a measurement: open models and items, score, measure again."""
