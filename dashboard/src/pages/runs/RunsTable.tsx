/** The rows of the list, windowed. */
import { memo, useCallback, useMemo } from "react";
import type { Row } from "../../api/types";
import { useMiddle, useNarrow } from "../../lib/media";
import { VirtualRows } from "../../ui/VirtualRows";
import { type Column, COLUMNS } from "./columns";
import type { RunListView } from "./runList";

interface Props {
  view: RunListView;
  chosen: ReadonlySet<string>;
  onChoose: (run: string) => void;
  onWant: (index: number) => void;
  /** The one kind that is shown; "": all. */
  kind: string;
  sort: string;
  order: string;
  onSort: (sort: string, order: string) => void;
  /** Columns that are not shown, by id. */
  hidden: readonly string[];
}

export function RunsTable({ view, chosen, onChoose, onWant, kind, sort, order, onSort, hidden }: Props) {
  const narrow = useNarrow();
  const middle = useMiddle();
  const columns = useMemo(
    () => COLUMNS.filter(({ id, roomy }) => narrow || (!hidden.includes(id) && !(middle && roomy))),
    [hidden, narrow, middle],
  );
  const template = ["20px", ...columns.map((column) => column.width)].join(" ");
  const { rows, total, ready } = view;
  const sight = useCallback((_: number, last: number) => onWant(last + 40), [onWant]);
  return (
    <VirtualRows
      className="runs sheet"
      label="Runs"
      count={ready ? Math.max(total, rows.length) : 12}
      height={narrow ? 84 : 44}
      keyOf={(index) => rows[index]?.run ?? `waiting-${index}`}
      onSight={sight}
      render={(index) => {
        const row = rows[index];
        if (!row) return <Waiting index={index} />;
        return <RunRow row={row} index={index} chosen={chosen.has(row.run)} onChoose={onChoose} columns={columns} template={template} />;
      }}
      head={
        <div className="runs-row runs-head" role="row" aria-rowindex={1} style={{ "--columns": template } as React.CSSProperties}>
          <span role="columnheader">
            <span className="hidden-text">Choose</span>
          </span>
          {columns.map(({ id, head, by, num }) => {
            const mixed = by === "value" && kind === "";
            return (
              <span key={id} role="columnheader" className={num ? "num" : undefined} aria-sort={by === null || mixed ? undefined : sorted(by, sort, order)}
                title={mixed ? "Results of different kinds do not compare: choose one kind to sort by them." : undefined}>
                {by === null || mixed ? head : <SortButton head={head} by={by} sort={sort} order={order} onSort={onSort} />}
              </span>
            );
          })}
        </div>
      }
    />
  );
}

export function sorted(by: string, sort: string, order: string): "ascending" | "descending" | "none" {
  if (by !== sort) return "none";
  return order === "up" ? "ascending" : "descending";
}

interface SortProps {
  head: string;
  by: string;
  sort: string;
  order: string;
  onSort: (sort: string, order: string) => void;
}

/** A head that sorts: down at first, up when pressed again; the newest first is the list's own order. */
export function SortButton({ head, by, sort, order, onSort }: SortProps) {
  const on = by === sort;
  const mark = !on ? "" : order === "up" ? " ▲" : " ▼";
  return (
    <button type="button" className="sort" onClick={() => onSort(by, by === "" ? "" : on && order === "down" ? "up" : "down")}>
      {head}
      <span aria-hidden="true">{mark}</span>
    </button>
  );
}

function Waiting({ index }: { index: number }) {
  return (
    <div className="runs-row" role="row" aria-rowindex={index + 2} aria-busy="true">
      <span role="cell" className="bone">
        <span className="hidden-text">Loading</span>
      </span>
    </div>
  );
}

interface RowProps {
  row: Row;
  index: number;
  chosen: boolean;
  onChoose: (run: string) => void;
  columns: readonly Column[];
  template: string;
}

const RunRow = memo(function RunRow({ row, index, chosen, onChoose, columns, template }: RowProps) {
  return (
    <div className="runs-row" role="row" aria-rowindex={index + 2} data-chosen={chosen} style={{ "--columns": template } as React.CSSProperties}>
      <span role="cell" className="c-choose">
        <input type="checkbox" checked={chosen} onChange={() => onChoose(row.run)} aria-label={`Choose ${row.name}`} />
      </span>
      {columns.map((column) => (
        <span key={column.id} role="cell" className={`c-${column.id} ${column.num ? "num nowrap" : ""} ${column.cut ? "cut" : ""}`}>
          {column.cell(row)}
        </span>
      ))}
    </div>
  );
});
