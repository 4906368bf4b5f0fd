"""The shared queue: which task runs next, on which device, under which lease."""
