"""Doing things: from a decision to what happened.

artifacts.py   weights by digest: memory first, disk for what is kept; a cache of the log
leases.py      claims on tasks, so that processes share a run instead of repeating each other
bench.py       what a process keeps in hand for a run: sources, data, the resident model
tasks.py       carry out one task, return the event
advance.py     fold, decide, append or work; until the run has ended
fork.py        branch a run at a place of its history
archive.py     a run to one file and back
audit.py       what an audit needs weights for; anchors.py: what is noted outside of a run's stream
control.py     pause, resume, cancel, retry, priority
schedule.py    whose task is next, pure; for the workers to come
home.py        where the log and the cache are
"""
