/** What every tab of a run's page knows: which run, and at which place of its history. */
import { createContext, useContext } from "react";
import { withQuery } from "../../api/client";
import type { Overview } from "../../panels/usePanels";
import { isMerging, type Run, type RunFacts } from "../../api/types";

export interface RunView<Kind extends RunFacts = RunFacts> {
  /** The run as it is now. */
  live: Kind;
  /** The run as it is shown: now, or as it was at `at`. */
  shown: Kind;
  at: number | null;
  /** What is shown is the moment that was asked for, and not an earlier one that still stands. */
  settled: boolean;
  /** Head and panels. */
  overview: Overview;
  /** Opens a candidate's recipe. */
  open: (candidate: string) => void;
}

const RunContext = createContext<RunView | null>(null);
export const RunProvider = RunContext.Provider;

export function useRun(): RunView {
  const found = useContext(RunContext);
  if (!found) throw new Error("outside of a run's page");
  return found;
}

/** The same on a page of a merging run. */
export function useMerging(): RunView<Run> {
  const { live, shown, ...rest } = useRun();
  if (!isMerging(live) || !isMerging(shown)) throw new Error("outside of a merging run's page");
  return { live, shown, ...rest };
}

export function runPath(run: string, rest = "", query: Record<string, string | number | null> = {}): string {
  return withQuery(`runs/${encodeURIComponent(run)}${rest}`, query);
}
