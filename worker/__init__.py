"""The part with effects: it does the tasks that a run decides on and the commands of users."""
