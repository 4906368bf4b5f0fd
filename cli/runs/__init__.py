"""Commands about runs of any kind: start, control, look at, replay, verify, fork, export."""
