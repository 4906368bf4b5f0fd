"""Time to an answer of the API, and on the page."""
