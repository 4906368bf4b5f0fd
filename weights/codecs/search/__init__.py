"""Compiled searches of the codecs: for seeds, for centres, for nearest points of the plane."""
