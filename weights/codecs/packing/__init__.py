"""Packing of the codecs' numbers into bytes: bits, trits, range coding, grids and steps of rows."""
