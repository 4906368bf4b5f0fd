"""The shared queue: it decides which task runs next, on which device, under which lease."""
