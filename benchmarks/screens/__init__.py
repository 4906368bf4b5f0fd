"""Time to an answer: terminal, API and page."""
