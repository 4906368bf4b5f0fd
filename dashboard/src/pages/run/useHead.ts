/** What a run does now, asked for every few seconds while it lives and somebody looks. */
import { useEffect, useRef, useState } from "react";
import type { Activity, RunFacts } from "../../api/types";
import { useResource } from "../../lib/hooks";
import { runPath } from "./context";

const EVERY = 4000;

const lives = (status: string) => status === "submitted" || status === "running" || status === "paused";

/** Null for a run that has ended, and for the past. */
export function useHead(run: RunFacts, at: number | null): Activity | null {
  const wanted = at === null && lives(run.status);
  const answer = useResource<Activity>(wanted ? runPath(run.run, "/head") : null, EVERY);
  return wanted ? (answer.data ?? null) : null;
}

/** Seconds that go on by themselves from the last answer while the run's clock runs. */
export function useClock(head: Activity | null): number | null {
  const since = useRef({ head, at: performance.now() });
  if (since.current.head !== head) since.current = { head, at: performance.now() };
  const ticking = head !== null && head.elapsed_s !== null && head.status !== "paused";
  const [, tick] = useState(0);
  useEffect(() => {
    if (!ticking) return;
    const timer = window.setInterval(() => tick((n) => n + 1), 1000);
    return () => window.clearInterval(timer);
  }, [ticking]);
  if (head === null || head.elapsed_s === null) return null;
  return Math.floor(head.elapsed_s + (ticking ? (performance.now() - since.current.at) / 1000 : 0));
}
