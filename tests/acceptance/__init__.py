"""Acceptance tests: processes, kills, clusters, browsers, deployments and examples."""
