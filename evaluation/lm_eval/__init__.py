"""Tasks of lm-evaluation-harness (Gao et al. 2024) as items.

The harness is an optional extra and runs in processes of its own. It reads its tasks, builds the
prompts and judges replies. The resident model, draws, slices and outcomes are this package's. The
harness caches nothing.
"""
