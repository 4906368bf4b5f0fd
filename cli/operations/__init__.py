"""Commands for those who operate an installation: server, workers, users, database, artifact store."""
