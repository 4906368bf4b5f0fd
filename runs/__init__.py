"""Parts that every kind of run shares, without torch and without merging.

errors.py           every error that a user can meet, with its exit code
home.py             the folder with the log and the caches
keys.py             keys and seeds that random numbers are derived from
streams.py          names of runs and of their streams
event_types.py      value types inside events
panels/             what is shown of a run: head and panels, thinned for the wire, and as tables
system/             processes, files, environment variables and text from outside
"""
