"""Views of a merging run's state: words, generations, outlook, rehearsal. Pure."""
