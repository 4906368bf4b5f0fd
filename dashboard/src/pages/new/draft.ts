/** What the form of a new run says, as the body that the API takes. */
import type { Again, Json, Values } from "../../api/types";
import { parse, type Schema } from "../../lib/schema";

export type Quarantine = "fail" | "worst-fitness";

export interface Draft {
  kind: string;
  name: string;
  /** Those of the kind's main role. */
  models: string[];
  /** Role → models, of further roles. */
  roles: Record<string, string[]>;
  base: string;
  data: string[];
  /** The text of a file, of kinds that have one. */
  file: string;
  strategy: string;
  generations: string;
  /** Time for the whole run, as 1h. */
  budget_hours: string;
  seed: string;
  priority: string;
  labels: string;
  reason: string;
  /** What happens when a task has killed its process three times. */
  quarantine: Quarantine;
  /** Advanced settings that were given, as typed. */
  more: Record<string, string>;
}

/** The kind of run that the form has fields of its own for. */
export const MERGING = "evomerge";

export const BLANK: Draft = {
  kind: MERGING,
  name: "",
  models: ["", ""],
  roles: {},
  base: "",
  data: [""],
  file: "",
  strategy: "",
  generations: "",
  budget_hours: "",
  seed: "",
  priority: "",
  labels: "",
  reason: "",
  quarantine: "fail",
  more: {},
};

/** Settings that the form has fields of their own for. */
export const OWN = ["strategy", "generations", "budget_hours", "seed"] as const;

/** What the API calls the models that a kind of run is of. */
function mainRole(kind: string): string {
  return kind === MERGING ? "sources" : "model";
}

/** The draft of a run that is asked for again. */
export function filled(asked: Again): Draft {
  const texts = Object.fromEntries(Object.entries(asked.config).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]));
  const own = asked.kind === MERGING ? OWN : [];
  const roles: Record<string, string[]> = Array.isArray(asked.models) ? { [mainRole(asked.kind)]: asked.models } : asked.models;
  const { [mainRole(asked.kind)]: models = [], ...further } = roles;
  const more = Object.fromEntries(Object.entries(texts).filter(([name]) => !(own as readonly string[]).includes(name)));
  return {
    ...BLANK,
    kind: asked.kind,
    models: models.length > 1 ? models : [...models, "", ""].slice(0, 2),
    roles: further,
    base: asked.base ?? "",
    data: asked.data.length > 0 ? asked.data : [""],
    file: asked.file ?? "",
    ...Object.fromEntries(own.map((name) => [name, texts[name] ?? ""])),
    priority: asked.priority === 0 ? "" : String(asked.priority),
    labels: asked.labels.join(", "),
    quarantine: asked.quarantine === "worst-fitness" ? "worst-fitness" : "fail",
    more,
  };
}

export interface Body {
  kind: string;
  name?: string;
  models: string[] | Record<string, string[]>;
  base: string | null;
  data: string[];
  config: Values;
  file?: string;
  priority: number;
  labels: string[];
  quarantine: Quarantine;
  reason?: string;
}

/** The body of a draft. With `whole`, a file says all: models, data and settings. */
export function bodyOf(draft: Draft, schema: Schema | undefined, whole: boolean): Body {
  const config: Values = {};
  if (whole) return { ...queued(draft), kind: draft.kind, models: [], base: null, data: [], config, file: draft.file };
  for (const [name, text] of Object.entries(given(draft))) config[name] = read(name, text, schema);
  const further = Object.entries(draft.roles).map(([role, models]) => [role, kept(models)] as const).filter(([, models]) => models.length > 0);
  const models = kept(draft.models);
  return {
    kind: draft.kind,
    models: further.length > 0 ? { [mainRole(draft.kind)]: models, ...Object.fromEntries(further) } : models,
    base: draft.base.trim() || null,
    data: kept(draft.data),
    config,
    ...queued(draft),
  };
}

function queued(draft: Draft): Pick<Body, "name" | "priority" | "labels" | "quarantine" | "reason"> {
  return {
    ...(draft.name.trim() ? { name: draft.name.trim() } : {}),
    priority: /^-?\d+$/.test(draft.priority.trim()) ? Number(draft.priority) : 0,
    labels: kept(draft.labels.split(",")),
    quarantine: draft.quarantine,
    ...(draft.reason.trim() ? { reason: draft.reason.trim() } : {}),
  };
}

/** Fields whose text is no value that could be sent. */
export function unreadable(draft: Draft): Record<string, string> {
  const text = draft.priority.trim();
  return text === "" || /^-?\d+$/.test(text) ? {} : { priority: "must be a whole number" };
}

function given(draft: Draft): Record<string, string> {
  const all: Record<string, string> = { ...draft.more };
  if (draft.kind === MERGING) for (const name of OWN) all[name] = draft[name];
  return Object.fromEntries(Object.entries(all).filter(([, text]) => text.trim() !== ""));
}

function read(name: string, text: string, schema: Schema | undefined): Json {
  return parse(text, schema?.properties?.[name] ?? {}, schema ?? {});
}

function kept(list: string[]): string[] {
  return list.map((text) => text.trim()).filter(Boolean);
}
