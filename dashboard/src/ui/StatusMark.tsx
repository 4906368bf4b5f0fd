/** A status as a shape, a colour and a word. */
import type { ReactNode } from "react";

const SHAPES: Record<string, ReactNode> = {
  submitted: <circle cx="8" cy="8" r="5.5" strokeDasharray="2.2 2.2" />,
  running: (
    <>
      <circle cx="8" cy="8" r="5.5" opacity="0.35" />
      <path d="M8 2.5A5.5 5.5 0 0 1 13.5 8" className="turning" />
    </>
  ),
  paused: <path d="M5.5 3.5v9M10.5 3.5v9" strokeWidth="2.4" />,
  completed: <path d="M3 8.5l3.4 3.4L13 4.6" strokeWidth="2" />,
  failed: <path d="M4 4l8 8M12 4l-8 8" strokeWidth="2" />,
  "needs a decision": <path d="M8 2.5L14 13H2zM8 6.4v3M8 11.2v.3" />,
  cancelled: (
    <>
      <circle cx="8" cy="8" r="5.5" />
      <path d="M4.2 11.8l7.6-7.6" />
    </>
  ),
};

/** The word for a run that has stopped until a user decides. */
export const UNDECIDED = "needs a decision";

export function StatusMark({ status }: { status: string }) {
  return (
    <span className="status" data-status={status}>
      <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" aria-hidden="true">
        {SHAPES[status] ?? <circle cx="8" cy="8" r="3" fill="currentColor" stroke="none" />}
      </svg>
      {status}
    </span>
  );
}
