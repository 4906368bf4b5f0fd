"""Measurement of a model beside others, on the same documents: what gates of a pipeline decide by."""
