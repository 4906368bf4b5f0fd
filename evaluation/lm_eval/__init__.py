"""Tasks of lm-evaluation-harness (Gao et al. 2024) as items.

The harness is an extra and runs in processes of its own. It reads its tasks, builds the prompts and
judges replies; the model is ours, resident, and so are draws, slices and outcomes. It caches nothing.

specs.py    `lm-eval:NAME`: what is asked for, and whether it may be             (pure)
items.py    a task's documents as items
reader.py   the same, in a process that has the harness
judge.py    what a task says of a reply; a scorer (docs/fitness.md)
"""
