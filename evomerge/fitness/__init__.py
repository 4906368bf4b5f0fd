"""Fitness: measured, itemised.

data.py        items from JSONL and text files                          (pure)
outcomes.py    what one evaluation saw, item by item; slices' draws     (pure)
composite.py   outcomes → components → one number                       (pure)
compare.py     paired comparison of two evaluations on the same items   (pure)
gates.py       when clear losers are dropped                            (pure)
itemised.py    outcomes item by item, with names                        (pure)
packing.py     items → windows, questions and problems, as token ids
evaluator.py   who measures, in one protocol
resident.py    one model object per architecture, weights swapped in
endpoint.py    a model that a server holds
probing.py     batch and dtype by measuring
pairs.py       tokens of prompt and choice as lm-evaluation-harness has them
perplexity.py  log-likelihood and next-token accuracy of windows
accuracy.py    multiple choice by log-likelihood; choices.py: each prompt read once
generation.py  replies to problems
evaluate.py    all of it for one candidate
cost.py        operations and bytes by arithmetic; speed.py: by measuring
layers.py      which block of which input is better (frankenmerge)
"""
