"""REST, live events and the dashboard over one log (docs/api.md). `api.app.create` makes it.

options.py    what the environment says
problems.py   errors as problem details
serving.py    the HTTP server: sizes, time limits, numbers of connections; waiting.py counts
guard.py      what every request passes: host, token, size, media type, characters; fields.py
access.py     who asks, what they may, how often
readers.py    processes beside the server that open models and data; work.py: those that take long
desk.py       the log, and runs folded
views.py, graph.py    states as plain data: pure
shapes.py     bodies and answers, for the OpenAPI document
runs.py asking.py catalogue.py people.py phases.py    routes
live.py       WebSocket and server-sent events
site/         the dashboard, built
"""
