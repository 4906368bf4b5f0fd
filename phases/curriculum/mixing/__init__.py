"""The rules of the next mix, and what a segment has beside it. Pure."""
