"""Live events: the stream of a log, and the WebSocket and server-sent events that carry it."""
