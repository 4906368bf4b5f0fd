/** The table itself: the first column stays, heads sort, only rows in sight are drawn. */
import { useMemo, useState } from "react";
import type { PopulationRow } from "../../../api/types";
import { short } from "../../../lib/format";
import { useMerging } from "../context";
import { type Column, order } from "./columns";

interface Props {
  rows: PopulationRow[];
  columns: Column[];
  champion: string | null;
}

const ROW = 36;
const BEYOND = 10;

export function PopulationTable({ rows, columns, champion }: Props) {
  const { open } = useMerging();
  const [sort, setSort] = useState<{ key: string; down: boolean }>({ key: "", down: false });
  const [top, setTop] = useState(0);
  const sorted = useMemo(() => {
    const column = columns.find((one) => one.key === sort.key);
    if (!column) return rows;
    return [...rows].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      const plain = order(x, y);
      return sort.down && x !== null && y !== null ? -plain : plain;
    });
  }, [rows, columns, sort]);
  const first = Math.max(0, Math.min(Math.floor(top / ROW), sorted.length - 1) - BEYOND);
  const last = Math.min(sorted.length, Math.floor(top / ROW) + 40 + BEYOND);
  const turn = (key: string) => setSort(sort.key !== key ? { key, down: false } : sort.down ? { key: "", down: false } : { key, down: true });
  return (
    <div className="sheet population" tabIndex={0} role="region" aria-label="Population" onScroll={(event) => {
      const next = Math.floor(event.currentTarget.scrollTop / (ROW * BEYOND)) * ROW * BEYOND;
      if (next !== top) setTop(next);
    }}>
      <table className="table" aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            <th scope="col" className="stay">Candidate</th>
            {columns.map((column) => (
              <th key={column.key} scope="col" className={column.numeric ? "num" : undefined}
                aria-sort={sort.key === column.key ? (sort.down ? "descending" : "ascending") : undefined}>
                <button type="button" className="sort" onClick={() => turn(column.key)}>
                  {column.label}
                  <span aria-hidden="true">{sort.key === column.key ? (sort.down ? "↓" : "↑") : ""}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: first * ROW }} />}
          {sorted.slice(first, last).map((row, index) => (
            <tr key={`${row.generation}/${row.slot}`} aria-rowindex={first + index + 2} style={{ height: ROW }}>
              <th scope="row" className="stay">
                <span className="who">
                  <span className="quiet">{row.generation}/{row.slot}</span>
                  <button type="button" className="link mono" onClick={() => open(row.recipe_id)}>
                    {short(row.recipe_id)}
                  </button>
                  {row.recipe_id === champion && <i className="diamond" role="img" aria-label="champion" />}
                </span>
              </th>
              {columns.map((column) => (
                <td key={column.key} className={`${column.numeric ? "num" : ""} ${column.mono && !column.numeric ? "mono" : ""} cut`} title={column.numeric ? undefined : column.text(row)}>
                  {column.text(row)}
                </td>
              ))}
            </tr>
          ))}
          {last < sorted.length && <tr aria-hidden="true" style={{ height: (sorted.length - last) * ROW }} />}
        </tbody>
      </table>
    </div>
  );
}
