"""Architecture `titans_mag`: sliding-window attention gated with a neural memory.

The other files of this folder are the code that exported folders hold: they import torch, transformers
and each other only.
"""
