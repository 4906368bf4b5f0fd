"""Queue, workers and whole runs: speed, fairness, kills and faults."""
