"""Verifiers: programs that say whether a generated reply is right. No torch.

exact.py       the text itself
number.py      a number in the reply
structured.py  JSON, CSV, YAML or TOML, field by field
program.py     Python that is run against tests, in the sandbox
scorer.py      a user's own function, found by its entry point
checks.py      all of them: what an item's `check` may be, and who verifies it
"""
