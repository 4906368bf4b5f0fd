"""Fitness: measured, itemised.

data.py        items from JSONL and text files; slices; draws           (pure)
outcomes.py    what one evaluation saw, item by item                    (pure)
composite.py   outcomes → components → one number                       (pure)
compare.py     paired comparison of two evaluations on the same items   (pure)
packing.py     items → windows and questions, as token ids
resident.py    one model object per architecture, weights swapped in
perplexity.py  log-likelihood and next-token accuracy of windows
accuracy.py    multiple choice by log-likelihood
evaluate.py    all of it for one candidate
cost.py        operations and bytes by arithmetic; speed and memory by measuring
layers.py      which block of which input is better (frankenmerge)
"""
