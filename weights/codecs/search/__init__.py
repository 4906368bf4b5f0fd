"""Searches of the codecs, compiled: seeds, centres, places of the plane."""
