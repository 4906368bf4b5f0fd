"""Ternary weights (BitNet b1.58, arXiv 2402.17764): quantiser, layers that use it, packing."""
