"""Words and numbers about the queue: activity, reasons to wait, Prometheus metrics."""
