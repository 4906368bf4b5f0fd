"""Error feedback of the codecs: grams of a layer's inputs, and the correction of rounding errors."""
