"""`forge verify`: a run is checked against its log, its models and the runs behind it."""
