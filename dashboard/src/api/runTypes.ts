/** The shapes of a run, as types.ts has the others. */
export type Action = "pause" | "resume" | "cancel" | "retry" | "priority" | "fork" | "export";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type Settings = Record<string, Json>;

export type Status = "submitted" | "running" | "paused" | "completed" | "failed" | "cancelled";

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
}

export interface SourceModel {
  name: string;
  recipe_id: string | null;
  digest: string | null;
  path: string | null;
}

export interface Technique {
  technique: string;
  candidates: number;
  better_half: number;
  best: number | null;
  champions: number;
}

export interface FrontAxis {
  name: string;
  better: "up" | "down";
}

export interface FrontPoint {
  candidate: string;
  /** In the axes' order, as people know them: a perplexity, an accuracy, bytes. */
  values: number[];
}

export interface Front {
  axes: FrontAxis[];
  candidates: FrontPoint[];
  dominated: FrontPoint[];
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
  beaten: boolean | null;
  worse: boolean | null;
}

export interface Headline {
  slice: "selection" | "test";
  score: number;
  unit: string;
  items: number | null;
  /** The best source or the base, and the champion's lead over it, on the test slice. */
  over: string | null;
  lead: number | null;
  low: number | null;
  high: number | null;
}

export interface DomainRow {
  domain: string;
  metric: "perplexity" | "accuracy";
  better: "up" | "down";
  champion: number | null;
  others: Record<string, number | null>;
}

export interface Domains {
  slice: "selection" | "test";
  rows: DomainRow[];
}

export interface AtWork {
  who: string;
  doing: string;
  seconds: number | null;
}

/** What a run does now; it has no past. */
export interface Head {
  status: Status;
  doing: string | null;
  at_work: AtWork[];
  waits_for: string | null;
  done: number;
  of: number | null;
  unit: string;
  inside: number | null;
  eta_s: number | null;
  elapsed_s: number | null;
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

export interface ForkOrigin {
  run: string;
  place: number;
}

export interface Thresholds {
  low: number;
  reseed: number;
}

export interface GeneRow {
  gene: string;
  correlation: number | null;
  candidates: number;
}

export interface Run {
  run: string;
  status: Status;
  /** Why it failed or was cancelled. */
  reason: string | null;
  /** Why the search has ended, once it has: the test comes next. */
  search_ended: string | null;
  owner: string;
  priority: number;
  labels: string[];
  strategy: string | null;
  device: string | null;
  submitted_at: string;
  updated_at: string;
  place: number;
  places: number;
  version: number;
  head: string;
  forked_from: ForkOrigin | null;
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
  /** Tasks that are next, failed or quarantined, in words. */
  words: Record<string, string>;
  champion: Champion | null;
  headline: Headline | null;
  /** How many items each slice has; of search, a generation's draw. */
  items: Record<string, number> | null;
  domains: Domains | null;
  diversity: number | null;
  level: string | null;
  /** Below `low` diversity warns, below `reseed` candidates are replaced. */
  thresholds: Thresholds;
  generations: GenerationRow[];
  techniques: Technique[];
  genes: GeneRow[];
  front: Front | null;
  stages: Record<string, number>;
  cost: Settings | null;
  spent: Spent;
  test: { score: number | null; quality: number | null; components: Components | null } | null;
  rivals: Rival[];
  verdict: ({ sentence: string } & Settings) | null;
  lineage_digest: string | null;
}
