"""Commands of users: submit, control, fork, accounts, limits, the model registry."""
