/** As much of JSON Schema as the settings of a run need: to read a text as a value, and to say what is wrong with it. */
import type { Json } from "../api/types";
import { isLong, long } from "./exact";

export interface Schema {
  type?: string;
  title?: string;
  description?: string;
  default?: Json;
  enum?: Json[];
  const?: Json;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  items?: Schema;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  $ref?: string;
  $defs?: Record<string, Schema>;
}

/** A text as somebody types it: JSON where it is JSON, words with commas where a list is wanted, else text. */
export function parse(text: string, schema: Schema, root: Schema): Json {
  const plain = text.trim();
  const wanted = resolve(schema, root);
  const takesText = kinds(wanted, root).has("string");
  const whole = takesText ? null : long(plain);
  if (whole !== null) return whole;
  try {
    const value = JSON.parse(plain) as Json;
    if (!takesText || typeof value !== "number" || kinds(wanted, root).has("number") || kinds(wanted, root).has("integer")) return value;
  } catch {
    // Not JSON: words.
  }
  if (kinds(wanted, root).has("array") && !takesText) {
    return plain ? plain.split(",").map((part) => part.trim()) : [];
  }
  return plain;
}

/** What is wrong with a value, or null. */
export function wrong(value: Json, given: Schema, root: Schema): string | null {
  const schema = resolve(given, root);
  if (schema.anyOf) {
    const found = schema.anyOf.map((one) => wrong(value, one, root));
    return found.includes(null) ? null : `${[...new Set(found)].join(", or ")}`;
  }
  if (schema.const !== undefined && value !== schema.const) return `must be ${JSON.stringify(schema.const)}`;
  if (schema.enum && !schema.enum.includes(value)) return `must be one of ${schema.enum.join(", ")}`;
  if (isLong(value)) return longWrong(value, schema);
  if (schema.type && !isA(value, schema.type)) return `must be ${NAMES[schema.type] ?? schema.type}`;
  if (typeof value === "number") return outside(value, schema);
  if (Array.isArray(value) && schema.items) {
    for (const item of value) {
      const found = wrong(item, schema.items, root);
      if (found) return `each ${found}`;
    }
  }
  if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const [name, part] of Object.entries(value)) {
      const known = schema.properties?.[name];
      const rest = schema.additionalProperties;
      if (!known && rest === false) return `has no part ${name}`;
      const found = known ? wrong(part, known, root) : typeof rest === "object" ? wrong(part, rest, root) : null;
      if (found) return `${name} ${found}`;
    }
  }
  return null;
}

const NAMES: Record<string, string> = {
  integer: "a whole number",
  number: "a number",
  boolean: "true or false",
  string: "a text",
  array: "a list",
  object: 'an object, as {"name": 1}',
  null: "null",
};

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

function isA(value: Json, type: string): boolean {
  switch (type) {
    case "integer":
      return typeof value === "number" && Number.isInteger(value);
    case "number":
      return typeof value === "number";
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "null":
      return value === null;
    default:
      return typeof value === type;
  }
}

function longWrong(value: string, schema: Schema): string | null {
  if (schema.type !== "integer" && schema.type !== "number") return `must be ${NAMES[schema.type ?? ""] ?? schema.type}`;
  return outside(Number(value.slice(1)), schema);
}

function outside(value: number, schema: Schema): string | null {
  if (schema.minimum !== undefined && value < schema.minimum) return `must be ${schema.minimum} or more`;
  if (schema.maximum !== undefined && value > schema.maximum) return `must be ${schema.maximum} or less`;
  if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum) return `must be more than ${schema.exclusiveMinimum}`;
  if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum) return `must be less than ${schema.exclusiveMaximum}`;
  return null;
}
