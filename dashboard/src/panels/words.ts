/** Names, numbers and colours as all panels write them. */
import type { Lead, Metric } from "../api/types";
import { bytes, duration, NONE, number, signed } from "../lib/format";

/** "loss (nat/token)". */
export function named({ name, unit }: Metric): string {
  return unit ? `${name} (${unit})` : name;
}

/** "loss (nat/token), lower is better". */
export function directed(metric: Metric): string {
  return metric.better ? `${named(metric)}, ${metric.better === "up" ? "higher" : "lower"} is better` : named(metric);
}

/** A value with its unit, as a person says it: seconds as a time, shares as per cent. */
export function measured(value: number | string | null, unit: string): string {
  if (value === null) return NONE;
  if (typeof value === "string") return unit ? `${value} ${unit}` : value;
  if (unit === "s") return duration(value);
  if (unit === "B") return bytes(value);
  if (unit === "share") return `${number(100 * value)} %`;
  return unit ? `${number(value)} ${unit}` : number(value);
}

/** The ends of an interval; a unit that is no part of how a number is written stands once, with the value. */
export function between(low: number, high: number, unit: string): string {
  const own = ["s", "B", "share"].includes(unit) ? unit : "";
  return `${measured(low, own)} … ${measured(high, own)}`;
}

/** A difference with its sign. */
export function lead(value: number): string {
  return Math.abs(value) < 10 ? signed(value) : `${value < 0 ? "" : "+"}${number(value)}`;
}

export const VERDICTS: Record<Lead["verdict"], { mark: string; word: string }> = {
  better: { mark: "✓", word: "better" },
  level: { mark: "≈", word: "level" },
  worse: { mark: "✗", word: "worse" },
};

const HUES = ["var(--c-1)", "var(--c-2)", "var(--c-3)", "var(--c-4)", "var(--c-5)", "var(--c-6)"];
const DASHES = [undefined, "7 3", "2 3", "10 3 2 3"];

/** Colour and dash of the line or the part of this number; after six hues the dashes tell them apart. */
export function look(number: number): { color: string; dash: string | undefined } {
  return { color: HUES[number % HUES.length] ?? "var(--c-1)", dash: DASHES[Math.floor(number / HUES.length) % DASHES.length] };
}
