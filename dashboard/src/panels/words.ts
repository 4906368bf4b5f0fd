/** Names, numbers and colours as all panels write them. */
import type { Lead, Metric } from "../api/types";
import { bytes, duration, NONE, number, score, signed } from "../lib/format";

/** Units that a value is said in itself: 12 min 05 s, 113.1 KiB, 98.46 %. */
const SAID: Record<string, (value: number) => string> = {
  s: duration,
  B: bytes,
  bytes,
  share: (value) => `${number(Number((100 * value).toPrecision(12)))} %`,
};

/** A value, or that it is smaller than what can be told apart: "< 0.001". */
function least(value: number, limit: number, form: (value: number) => string): string {
  return value === 0 || Math.abs(value) >= limit ? form(value) : `${value < 0 ? "> −" : "< "}${limit}`;
}

/** How a unit says its values; undefined for a unit that stands behind them. */
export function said(unit: string): ((value: number) => string) | undefined {
  return SAID[unit];
}

/** "loss (nat/token)"; a unit that values are said in is not said twice. */
export function named({ name, unit }: Metric): string {
  return unit && !(unit in SAID) ? `${name} (${unit})` : name;
}

/** A value beneath a head that names its unit. */
export function valued(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return NONE;
  return SAID[unit]?.(value) ?? number(value);
}

/** The values of one column or one axis in one form: all with the same decimals, which give the largest four digits. In a table the decimals are few. */
export function inOneForm(values: Iterable<number | null | undefined>, unit: string, table = false): (value: number | null | undefined) => string {
  if (unit === "share") {
    const told = table ? (size: number) => least(size, 0.01, (rest) => `${rest < 0 ? "−" : ""}${Math.abs(rest).toFixed(2)}`) : inOneForm([...values].map((value) => (value ?? null) && 100 * (value as number)), "");
    return (value) => (value === null || value === undefined ? NONE : `${told(Number((100 * value).toPrecision(12)))} %`);
  }
  const sizes = [...values].flatMap((value) => (value === null || value === undefined ? [] : [Math.abs(value)]));
  const largest = Math.max(0, ...sizes);
  const smallest = Math.min(...sizes.filter((size) => size > 0));
  const plain = unit in SAID || sizes.every(Number.isInteger) || largest >= 1000 || (!table && largest > 1e4 * smallest);
  if (plain) return (value) => valued(value, unit);
  const places = (size: number) => Math.max(0, 3 - Math.floor(Math.log10(size)));
  // Values on both sides of 1, of 10 and so on have a decimal more: 1.0195 beside 0.9990.
  const decimals = Math.min(places(smallest), places(largest) + 1);
  const fixed = (value: number) => `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(decimals)}`;
  return (value) => (value === null || value === undefined ? NONE : least(value, 10 ** -decimals, (size) => (size === 0 ? number(size) : fixed(size))));
}

interface Listed {
  metric: string;
  value: number | null;
  unit: string;
  better: string | null;
}

/** The result of a run in a few words: "98.46 % kept", "2.310 loss ↓". */
export function resultInWords({ metric, value, unit, better }: Listed): string {
  if (value === null) return NONE;
  return `${unit in SAID ? valued(value, unit) : score(value)} ${metric}${better === "down" ? " ↓" : ""}`;
}

/** "loss (nat/token), lower is better". */
export function directed(metric: Metric): string {
  return metric.better ? `${named(metric)}, ${metric.better === "up" ? "higher" : "lower"} is better` : named(metric);
}

/** A value with its unit, as a person says it: seconds as a time, shares as per cent. */
export function measured(value: number | string | null, unit: string): string {
  if (value === null) return NONE;
  if (typeof value === "string") return unit ? `${value} ${unit}` : value;
  return unit && !(unit in SAID) ? `${number(value)} ${unit}` : valued(value, unit);
}

/** A limit as it was set, without zeros that only fill up: 0.01, 0.5 %. */
export function limited(value: number, unit: string): string {
  return measured(value, unit).replace(/\.0+\b|(\.\d*?[1-9])0+\b/, "$1");
}

/** The ends of an interval; a unit that is no part of how a number is written stands once, with the value. */
export function between(low: number, high: number, unit: string): string {
  const own = unit in SAID ? unit : "";
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
