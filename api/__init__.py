"""REST, live events and the dashboard over one log (docs/api.md). `api.app.create` makes it.

options.py    what the environment says
problems.py   errors as problem details
access.py     who asks, what they may, how often
desk.py       the log, and runs folded
views.py, graph.py    states as plain data: pure
shapes.py     bodies and answers, for the OpenAPI document
runs.py asking.py catalogue.py people.py phases.py    routes
live.py       WebSocket and server-sent events
site/         the dashboard, built
"""
