"""Phase 5: training that follows what the model can do, on tasks that a program checks."""
