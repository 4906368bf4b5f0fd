"""Doing things: from a decision to what happened.

artifacts.py   weights by digest: memory first, disk for what is kept; a cache of the log
leases.py      claims on tasks, so that processes share a run instead of repeating each other
bench.py       what a process keeps in hand for a run: sources, data, the resident model
tasks.py       carry out one task, return the event
advance.py     fold, decide, append or work; until the run has ended
home.py        where the log and the cache are
"""
