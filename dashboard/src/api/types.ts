/** The shapes of the API's OpenAPI document; a test compares the keys. */
import type { Champion, Json, Settings, Status } from "./runTypes";

export type Role = "viewer" | "submitter" | "admin";
export const ROLES: Role[] = ["viewer", "submitter", "admin"];

export interface Problem {
  type?: string;
  title: string;
  status: number;
  detail?: string;
  errors?: { field: string; message: string }[];
}

export interface Row {
  run: string;
  status: Status;
  owner: string;
  priority: number;
  labels: string[];
  submitted_at: string;
  updated_at: string;
  parent: string | null;
  generation: number | null;
  champion: string | null;
  score: number | null;
  version: number;
  device_seconds: number | null;
  curve: (number | null)[];
}

export interface RowPage {
  runs: Row[];
  total: number;
  next: string | null;
}

export * from "./runTypes";

export interface RunEvent {
  place: number;
  position: number;
  run: string;
  version: number;
  type: string;
  schema: number;
  actor: string;
  recorded_at: string;
  gist: string;
  data: Settings;
  key: string;
  hash: string;
}

export interface EventPage {
  events: RunEvent[];
  total: number;
  next: number | string | null;
}

export interface Candidate {
  generation: number;
  slot: number;
  recipe_id: string;
  kind: string;
  pipeline: string | null;
  rank: number | null;
  search: number | null;
  selection: number | null;
  perplexity: number | null;
  accuracy: number | null;
  parents: string[];
  genes: Record<string, number> | null;
  /** By part of the model, under the names of the run's genes. */
  parts: Record<string, number> | null;
  digest: string | null;
}

export interface Population {
  generation: number | null;
  generations: number[];
  rows: Candidate[];
}

export interface Worker {
  name: string;
  device: string;
  status: string;
  run: string | null;
  /** Its task in words. */
  doing: string | null;
  done: number;
  seconds: number;
  living: boolean;
  labels: string[];
  memory: number | null;
  profile: string | Settings | null;
}

export interface QueueRow extends Row {
  waits_for: string | null;
}

export type ModelKind = "source" | "base" | "specialist" | "champion";

export interface Model {
  id: string;
  name: string;
  kind: ModelKind;
  digest: string | null;
  bytes: number | null;
  parameters: number | null;
  metrics: Record<string, Json>;
  lineage: string[];
  run: string | null;
  path: string | null;
  registered_at: string | null;
}

export interface Me {
  name: string;
  role: Role;
  version: string;
  roots: string[];
}

export interface Side {
  run: string;
  place: number;
  status: Status;
  generation: number | null;
}

export interface ComparedGeneration {
  generation: number;
  a: number | null;
  b: number | null;
  diversity_a: number | null;
  diversity_b: number | null;
}

export interface Comparison {
  a: Side;
  b: Side;
  settings: Record<string, [Json, Json]>;
  sources: string[][];
  champion: (Partial<Champion> | null)[];
  candidates: { only_a: string[]; only_b: string[]; both: number };
  same_lineage: boolean;
  generations: ComparedGeneration[];
  test: (number | null)[];
  comparable: string | null;
}

export interface Check {
  ok: boolean;
  warnings: string[];
  parameters: number | null;
  items: Record<string, Record<string, number>> | null;
  config: Settings;
}
