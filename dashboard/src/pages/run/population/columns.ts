/** The columns of the population's table. */
import type { PopulationRow, Json } from "../../../api/types";
import { number, score, short } from "../../../lib/format";

export interface Column {
  key: string;
  label: string;
  /** What is compared and sorted by. */
  value: (row: PopulationRow) => string | number | null;
  text: (row: PopulationRow) => string;
  numeric: boolean;
  mono?: boolean;
}

const text = (key: keyof PopulationRow, label: string = key, mono = false): Column => ({
  key,
  label,
  value: (row) => row[key] as string | null,
  text: (row) => (row[key] as string | null) ?? "–",
  numeric: false,
  mono,
});

const value = (key: keyof PopulationRow, label: string, tell: (value: number | null) => string): Column => ({
  key,
  label,
  value: (row) => row[key] as number | null,
  text: (row) => tell(row[key] as number | null),
  numeric: true,
});

const FIRST: Column[] = [
  value("rank", "Rank", number),
  value("search", "Search score", score),
  value("selection", "Selection score", score),
  value("perplexity", "Perplexity", (one) => (one === null ? "–" : one.toFixed(3))),
  value("accuracy", "Accuracy", score),
  text("kind", "Made by"),
  text("pipeline", "Technique", true),
  { key: "digest", label: "Weights", value: (row) => row.digest, text: (row) => short(row.digest), numeric: false, mono: true },
];

/** All columns that these rows can fill, genes at the end. `names` has the models that the run was given. */
export function columnsOf(rows: PopulationRow[], names: ReadonlyMap<string, string>): Column[] {
  const genes = new Set<string>();
  for (const row of rows) for (const name of Object.keys(row.genes ?? {})) genes.add(name);
  return [
    ...FIRST,
    {
      key: "parents",
      label: "Parents",
      value: (row) => row.parents.join(" "),
      text: (row) => row.parents.map((id) => names.get(id) ?? id.slice(0, 8)).join(" "),
      numeric: false,
      mono: true,
    },
    ...[...genes].map((name) => ({
      key: `gene:${name}`,
      label: name,
      value: (row: PopulationRow) => row.genes?.[name] ?? null,
      text: (row: PopulationRow) => number(row.genes?.[name]),
      numeric: true,
      mono: true,
    })),
  ];
}

/** Whether a column says something else of some row than of another. */
export function differs(column: Column, rows: PopulationRow[]): boolean {
  const first = rows[0];
  return first !== undefined && rows.some((row) => column.value(row) !== column.value(first));
}

export function order(a: Json, b: Json): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
