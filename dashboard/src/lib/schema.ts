/** As much of JSON Schema as the settings of a run need to read a text as a value. The server says what is wrong with it. */
import type { Json } from "../api/types";
import { long } from "./bigJson";

export interface Schema {
  type?: string;
  /** The label, and the group that a form shows the setting in. */
  title?: string;
  group?: string;
  description?: string;
  /** Strategies that have the setting; missing: every run has it. */
  strategies?: string[];
  enum?: Json[];
  const?: Json;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  $ref?: string;
  $defs?: Record<string, Schema>;
}

/** A text as somebody types it: JSON where it is JSON, words with commas where a list is wanted, else text. */
export function parse(text: string, schema: Schema, root: Schema): Json {
  const wanted = resolve(schema, root);
  const types = kinds(wanted, root);
  const takesText = types.has("string");
  // A number may have commas, as the defaults are shown: 4,000,000.
  const grouped = !takesText && !types.has("array") && /^-?\d{1,3}(,\d{3})+(\.\d+)?$/.test(text.trim());
  const plain = grouped ? text.trim().replaceAll(",", "") : text.trim();
  const whole = takesText ? null : long(plain);
  if (whole !== null) return whole;
  try {
    const value = JSON.parse(plain) as Json;
    if (!takesText || typeof value !== "number" || types.has("number") || types.has("integer")) return value;
  } catch {
    // Not JSON: words.
  }
  if (types.has("array") && !takesText) {
    return plain ? plain.split(",").map((part) => part.trim()) : [];
  }
  return plain;
}

export function resolve(schema: Schema, root: Schema): Schema {
  const name = schema.$ref?.replace("#/$defs/", "");
  const found = name ? root.$defs?.[name] : undefined;
  return found ? { ...found, ...schema, $ref: undefined } : schema;
}

/** The types that a schema takes. */
export function kinds(schema: Schema, root: Schema): Set<string> {
  const plain = resolve(schema, root);
  const found = new Set<string>(plain.type ? [plain.type] : []);
  for (const one of plain.anyOf ?? []) for (const kind of kinds(one, root)) found.add(kind);
  for (const value of plain.enum ?? []) found.add(typeof value);
  if (typeof plain.const === "string") found.add("string");
  return found;
}
