"""Tasks of lm-evaluation-harness (Gao et al. 2024) as items.

The harness is an extra and runs in processes of its own. It reads its tasks, builds the prompts and
judges replies; the model is ours, resident, and so are draws, slices and outcomes. It caches nothing.
"""
