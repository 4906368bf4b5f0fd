"""Rules of a merging run: due tasks, champion, end of the search, settings of forks. Pure."""
