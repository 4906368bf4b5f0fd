/** The statuses of runs, in the order of a run's life. */
export const STATUSES = ["submitted", "running", "paused", "completed", "failed", "cancelled"];
