"""Error feedback of the codecs: grams of a layer's inputs, and what makes up for a rounding error."""
