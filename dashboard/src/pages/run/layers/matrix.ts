/** The layers' answer as a table of numbers: a row a source, a column a layer. */
import type { Layers } from "../../../api/types";

export interface Matrix {
  sources: string[];
  layers: string[];
  values: (number | null)[][];
  beside: { label: string; values: (number | null)[] }[];
}

export function matrix(answer: Layers): Matrix | null {
  const rows = answer.rows ?? [];
  const first = rows[0];
  if (!first) return null;
  const sources = answer.sources ?? first.coefficients.map((_, index) => `source ${index + 1}`);
  return {
    sources,
    layers: rows.map((row) => row.layer),
    values: sources.map((_, index) => rows.map((row) => row.coefficients[index] ?? null)),
    beside: [
      { label: "explained", values: rows.map((row) => row.explained) },
      { label: "moved", values: rows.map((row) => row.moved) },
    ],
  };
}
