/** Numbers, times and names as the dashboard writes them. */
import { plain, writeJson } from "./bigJson";

export const NONE = "–";

/** Any number: four significant digits where it is no count, groups of three where it is large, 1.979 × 10⁻⁵ where it is tiny. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (Number.isInteger(value) || size >= 1000) return sign + Math.round(size).toLocaleString("en-US");
  if (size >= 1e-4) return sign + size.toPrecision(4);
  const [digits, power] = size.toExponential(3).split("e-");
  return `${sign}${digits} × 10⁻${[...(power ?? "")].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("")}`;
}

/** A measured number: four digits, whole by chance or not. */
export function score(value: number | null | undefined): string {
  if (!value || !Number.isInteger(value) || Math.abs(value) >= 1000) return number(value);
  return value.toPrecision(4).replace("-", "−");
}

/** A difference of scores, with its sign: four decimals, so that both ends of an interval can be told apart. */
export function signed(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(4)}`;
}

/** Seconds as 24 ms, 42 s, 12 min 05 s, 3 h 20 min, 2 d 4 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds > 0 && seconds < 0.1) return `${Math.ceil(1000 * seconds)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (n: number) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(size < 10 ? 2 : 1)} ${units[unit]}`;
}

/** A text with the minus sign before its numbers that all other numbers have. */
export function minuses(text: string): string {
  return text.replace(/(^|[\s(])-(?=\d)/g, "$1−");
}

/** The beginning of an id. */
export function short(id: string | null | undefined): string {
  return id ? id.slice(0, 12) : NONE;
}

const sameDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const daySeconds = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const sameYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A time in this browser's zone, as short as it is clear. */
export function time(text: string | null | undefined, now = new Date()): string {
  if (!text) return NONE;
  const when = new Date(text);
  if (Number.isNaN(when.getTime())) return text;
  if (when.toDateString() === now.toDateString()) return `today, ${sameDay.format(when)}`;
  return when.getFullYear() === now.getFullYear() ? sameYear.format(when) : full.format(when);
}

/** A time to the second, with its day if that is not today. */
export function clock(text: string, now = new Date()): string {
  const when = new Date(text);
  if (Number.isNaN(when.getTime())) return text;
  return (when.toDateString() === now.toDateString() ? seconds : daySeconds).format(when);
}

export function exactTime(text: string | null | undefined): string {
  if (!text) return NONE;
  const when = new Date(text);
  return Number.isNaN(when.getTime()) ? text : exact.format(when);
}

/** The same time in UTC. */
export function utc(text: string | null | undefined): string | undefined {
  if (!text) return undefined;
  const when = new Date(text);
  return Number.isNaN(when.getTime()) ? undefined : `${when.toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

/** A setting's value in one line. */
export function setting(value: unknown): string {
  if (value === undefined) return NONE;
  if (value === null) return "not set";
  if (typeof value === "string") return value === "" ? "empty" : plain(value);
  if (Array.isArray(value) && value.every((item: unknown) => typeof item !== "object")) return value.join(", ") || "none";
  if (typeof value !== "object") return String(value);
  const parts = Object.entries(value).filter(([, part]) => typeof part !== "object" || part === null || Object.keys(part).length > 0);
  const flat = parts.length > 0 && parts.every(([, part]) => typeof part !== "object");
  return flat ? parts.map(([name, part]) => `${words(name)} ${part}`).join(", ") : writeJson(value);
}

/** snake_case as words. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}
