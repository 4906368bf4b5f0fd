/** How a stage of a pipeline stands: a shape, a colour and a word. */
import type { ReactNode } from "react";
import type { Stage } from "../api/types";

const RING = <circle cx="8" cy="8" r="5.5" />;

const SHAPES: Record<Stage["state"], ReactNode> = {
  waiting: <circle cx="8" cy="8" r="5" strokeDasharray="2 2.2" />,
  running: (
    <>
      <circle cx="8" cy="8" r="5.5" opacity="0.4" />
      <path d="M8 2.5A5.5 5.5 0 0 1 13.5 8" strokeWidth="2.4" />
      <circle cx="8" cy="8" r="1.6" fill="currentColor" stroke="none" />
    </>
  ),
  measuring: (
    <>
      <path d="M3 8.5l3.4 3.4L13 4.6" opacity="0.4" strokeWidth="2.2" />
      <path d="M8 2.5A5.5 5.5 0 0 1 13.5 8" strokeWidth="2.4" />
    </>
  ),
  paused: <path d="M5.5 3.5v9M10.5 3.5v9" strokeWidth="2.4" />,
  ended: <path d="M3 8.5l3.4 3.4L13 4.6" strokeWidth="2.2" />,
  reused: <path d="M3.4 9.2A4.8 4.8 0 1 0 5 4.4M2.6 3.2l2 1.6 1.7-2" />,
  "passed unchanged": <path d="M2.5 11c2-6 5-6 6.5-3s3 2 4.5-1M10.8 6.6L13.6 6.4l.3 2.8" />,
  "gate stopped": (
    <>
      <path d="M5.4 2h5.2L14 5.4v5.2L10.6 14H5.4L2 10.6V5.4z" />
      <path d="M5 8h6" strokeWidth="2.2" />
    </>
  ),
  overridden: <path d="M8 2.5L14 13H2zM8 6.4v3M8 11.2v.3" />,
  failed: <path d="M4 4l8 8M12 4l-8 8" strokeWidth="2.2" />,
  cancelled: (
    <>
      {RING}
      <path d="M4.2 11.8l7.6-7.6" />
    </>
  ),
};

export function StageMark({ state }: { state: Stage["state"] }) {
  return (
    <svg className="stage-mark" data-state={state} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      {SHAPES[state]}
    </svg>
  );
}
