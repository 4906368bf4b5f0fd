"""The part with effects: it does the tasks that a run decides on and the commands of users.

docs/map.md has a line for every module.
"""
