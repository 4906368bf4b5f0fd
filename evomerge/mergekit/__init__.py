"""Merging by a config file: `forge merge`. What a run does not need.

grammar.py     mergekit YAML, read with the line of every key
parameters.py  scalars, gradients over depth, filters by tensor name
layout.py      which output tensor is made of which tensors, and how
inputs.py      models as rows of tensors: plain, with a LoRA adapter, with rows moved to other tokens
vocabulary.py  one vocabulary of several tokenizers
writer.py      safetensors written in a stream: digest, sync, journal
engine.py      a layout → a folder, out of core, resumable
"""
