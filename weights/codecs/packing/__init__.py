"""Numbers of the codecs as bytes: bits, trits, range coding, grids and steps with their scales."""
