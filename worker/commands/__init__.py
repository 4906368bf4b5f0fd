"""What users ask for: submit, control, fork, accounts, the model registry."""
