/** The units of a run as a table with typed columns: heads sort it. */
import { useMemo, useState } from "react";
import type { Column, Units } from "../../api/types";
import { minuses, NONE, number, short } from "../../lib/format";
import { href } from "../../lib/router";
import { Id } from "../../ui/CopyButton";
import { usePlace } from "../context";
import { inOneForm, named } from "../words";
import { Sheet } from "../../ui/Sheet";

type Cell = Units["rows"][number][number];

const DIGEST = /\b[0-9a-f]{64}\b/;

/** Seconds are said as times: heads that name what they are the time of. */
const HEADS: Record<string, string> = { device_seconds: "device time", wall_seconds: "elapsed" };

const isNumber = (column: Column) => column.type === "number" || column.type === "integer";

export function UnitsPanel({ panel }: { panel: Units }) {
  const [sort, setSort] = useState<{ at: number; down: boolean } | null>(null);
  const rows = useMemo(() => (sort ? [...panel.rows].sort((a, b) => order(a[sort.at] ?? null, b[sort.at] ?? null, sort.down)) : panel.rows), [panel.rows, sort]);
  const forms = useMemo(
    () => panel.columns.map((column, at) => inOneForm(panel.rows.map((row) => (typeof row[at] === "number" ? row[at] : null)), column.unit, true)),
    [panel.columns, panel.rows],
  );
  const turn = (at: number) => setSort(sort?.at !== at ? { at, down: false } : sort.down ? null : { at, down: true });
  return (
    <Sheet label={`Table: ${panel.title}`} look="bare units">
      <table className="table">
        <thead>
          <tr>
            {panel.columns.map((column, index) => (
              <th key={column.name} scope="col" className={isNumber(column) ? "num" : undefined}
                aria-sort={sort?.at === index ? (sort.down ? "descending" : "ascending") : undefined}>
                <button type="button" className="sort" onClick={() => turn(index)}>
                  {HEADS[column.name] ?? named(column).replaceAll("_", " ")}
                  <span aria-hidden="true">{sort?.at === index ? (sort.down ? "↓" : "↑") : ""}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {panel.columns.map((column, at) => (
                <td key={column.name} className={isNumber(column) ? "num" : undefined}>
                  <Value cell={row[at] ?? null} type={column.type} form={forms[at] ?? number} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}

function Value({ cell, type, form }: { cell: Cell; type: Column["type"]; form: typeof number }) {
  const { pick } = usePlace();
  if (cell === null) return <span className="quiet">{NONE}</span>;
  if (typeof cell === "boolean") return cell ? "yes" : <span className="quiet">no</span>;
  if (typeof cell === "number") return form(cell);
  switch (type) {
    case "model":
      return pick ? (
        <button type="button" className="link mono" onClick={() => pick(cell)}>
          {short(cell)}
        </button>
      ) : (
        <Id id={cell} what="model" />
      );
    case "run":
      return (
        <a className="mono nowrap" href={href(["runs", cell])} title={cell}>
          {cell.slice(cell.indexOf(".") + 1)}
        </a>
      );
    default:
      return DIGEST.test(cell) ? <span title={cell}>{cell.replace(DIGEST, short)}</span> : minuses(cell).replace(/ (?=[%×])|(?<=×) /g, "\u00a0");
  }
}

/** Missing values come last, whichever way the others go. */
function order(a: Cell, b: Cell, down: boolean): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  const plain = typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : Number(a) - Number(b);
  return down ? -plain : plain;
}
