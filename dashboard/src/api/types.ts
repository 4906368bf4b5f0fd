/** The shapes of docs/api.md. */

export type Status = "submitted" | "running" | "paused" | "completed" | "failed" | "cancelled";
export type Role = "viewer" | "submitter" | "admin";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Settings = Record<string, Json>;
export type Action = "pause" | "resume" | "cancel" | "retry" | "priority" | "fork" | "export";

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

export interface Components {
  [name: string]: number | null | Record<string, number | null>;
}

export interface GenerationRow {
  generation: number;
  best: number | null;
  mean: number | null;
  spread: number | null;
  champion: number | null;
  champion_id: string | null;
  changed: boolean;
  diversity: number | null;
  level: string | null;
  components: Components | null;
  /** The place of its end, where the server says it. */
  place?: number;
}

export interface SourceModel {
  name: string;
  recipe_id: string;
  digest: string;
  path: string | null;
}

export interface Technique {
  technique: string;
  candidates: number;
  better_half: number;
  best: number | null;
  champions: number;
}

export interface Front {
  objectives: string[];
  candidates: { candidate: string; objectives: number[] }[];
  reference: number[] | null;
  hypervolume: number | null;
}

export interface Rival {
  name: string;
  kind: string;
  score: number | null;
  perplexity: number | null;
  accuracy: number | null;
  lead: number | null;
  low: number | null;
  high: number | null;
  beaten: boolean;
}

export interface Champion {
  recipe_id: string;
  name: string;
  what: string;
  score: number | null;
  since: number;
  components: Components | null;
}

export interface Spent {
  evaluations: number;
  items: number;
  device_seconds: number;
  wall_seconds: number;
}

export interface Run {
  run: string;
  status: Status;
  reason: string | null;
  owner: string;
  priority: number;
  labels: string[];
  strategy: string | null;
  device: string | null;
  submitted_at: string;
  updated_at: string;
  seconds_since_start?: number | null;
  place: number;
  places: number;
  version: number;
  head: string;
  forked_from: { run: string; place?: number; version?: number } | null;
  allowed: Action[];
  config: Settings;
  sources: SourceModel[];
  base: SourceModel | null;
  parameters: number | null;
  blocks: number | null;
  warnings: string[];
  generation: number | null;
  generations_wanted: number | null;
  pending: string[];
  failures: Record<string, number>;
  quarantined: string[];
  champion: Champion | null;
  diversity: number | null;
  level: string | null;
  /** Below `low` diversity warns (with `reseed`), or is too low (with `high`, below which it warns). */
  thresholds: { low: number; high?: number; reseed?: number } | null;
  generations: GenerationRow[];
  techniques: Technique[];
  genes: { gene: string; correlation: number | null; candidates: number }[];
  front: Front | null;
  stages: Record<string, number>;
  cost: Settings | null;
  spent: Spent;
  test: { score: number | null; quality: number | null; components: Components | null } | null;
  rivals: Rival[];
  verdict: ({ sentence: string } & Settings) | null;
  lineage_digest: string | null;
}

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
  digest: string | null;
}

export interface Population {
  generation: number | "all" | null;
  generations?: number[];
  rows: Candidate[];
}

export interface Worker {
  name: string;
  device: string;
  status: string;
  run: string | null;
  task: string | null;
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

export interface Comparison {
  a: { run: string; place: number; status: Status; generation: number | null };
  b: { run: string; place: number; status: Status; generation: number | null };
  settings: Record<string, [Json, Json]>;
  sources: string[][];
  champion: (Partial<Champion> | null)[];
  candidates?: { only_a: string[]; only_b: string[]; both: number };
  generations: {
    generation: number;
    a: number | null;
    b: number | null;
    diversity_a: number | null;
    diversity_b: number | null;
  }[];
  test: (number | null)[];
  comparable: string | null;
  same_lineage?: boolean;
}

export interface Check {
  ok: boolean;
  warnings: string[];
  parameters: number | null;
  items: Record<string, Record<string, number>> | null;
  config: Settings;
}
