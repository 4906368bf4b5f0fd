"""Inner loops, compiled by numba at their first call, without the interpreter's lock.

A merge is a few dozen operations on every element. One at a time they are bound by memory and, with
two threads, by the interpreter's lock; in one loop they are bound by neither (docs/decisions/0008).
Nothing is reordered or contracted by the compiler: a loop gives the same bits on any number of threads
and on any processor. Where a sum's order matters it is added up in float64, in lanes of a fixed number.

The passes (`passes.py`) take tensors as they are stored, by address: they read a block, make float32
task vectors of it, and are done with it before it leaves the first caches. `inner_loops.py` calls them,
and has the same in torch.
"""
