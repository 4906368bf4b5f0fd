/** The generated types of the API, and names for parts of them. */
import type { Me, Model, Run, RunFacts } from "./openapi";

export type * from "./openapi";

export type Action = RunFacts["allowed"][number];
export type ModelKind = Model["kind"];
export type Role = Me["role"];
export const ROLES: Role[] = ["viewer", "submitter", "admin"];

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
/** Settings of a run, by name. */
export type Values = Record<string, unknown>;

/** Whether a run is a merging run, which has a page of its own; of every other kind the page knows what all runs have. */
export function isMerging(run: RunFacts): run is Run {
  return run.kind === "evomerge";
}
