"""Commands of merging runs: the part of `forge` that knows EvoMerge, and shows it on a terminal."""
