"""Search by several objectives: variation, selection, Pareto fronts; kinds of run share them. Pure."""
