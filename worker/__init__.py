"""Doing things: from a decision to what happened.

artifacts.py   weights by digest: memory first, disk for what is kept; a cache of the log
leases.py      claims on tasks, so that processes share a run instead of repeating each other
bench.py       what a process keeps in hand for a run: sources, data, the resident model
tasks.py       carry out one task, return the event
hands.py       do one task and record what came of it
advance.py     fold, decide, append or work; until the run has ended
export.py      the champion's folder; target.py: where one may be written
fork.py        branch a run at a place of its history
archive.py     a run to one file and back
audit.py       what an audit needs weights for; anchors.py: what is noted outside of a run's stream
control.py     pause, resume, cancel, retry, priority
home.py        where the log and the cache are
copies.py      private copies of models, which runs read
delivered.py   a champion's folder against the log, file by file
supply.py      models and data that this machine lacks
vault.py       the store that they come from: sealed.py its bytes, stored_files.py its file system

The queue, see docs/architecture.md: crew.py, dispatcher.py, desk.py, ledger.py, schedule.py,
capability.py, locality.py, waiting.py, underway.py, outlook.py, roster.py, slot.py, process.py,
child.py, doorbell.py, limits.py, metrics.py, logs.py, servers.py, guard.py (stops a PostgreSQL that
was left), running.py (what `forge up` has started)
"""
