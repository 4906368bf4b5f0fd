"""`forge worker`: a thread and a child process per device, and local servers."""
