"""What searches find, beside those of others, and the worlds that they search in."""
