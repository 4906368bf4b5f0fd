"""Inner loops, compiled by numba at their first call, without the interpreter's lock.

A merge is a few dozen operations on every element. One operation at a time is bound by memory and,
with two threads, by the interpreter's lock. One loop with all operations is bound by neither
(docs/decisions/0008). The compiler reorders and contracts nothing: a loop gives the same bits on
any number of threads and on any processor. If the order of a sum matters, it is added up in
float64, in a fixed number of lanes.

The passes (`passes.py`) take tensors as they are stored, by address. A pass reads a block, makes
float32 task vectors of it, and is done with the block before it leaves the first caches.
`inner_loops.py` calls the passes, and has the same in torch.
"""
