/** The rows of the list, windowed. */
import { memo, useCallback } from "react";
import type { Row } from "../../api/types";
import { Sparkline } from "../../charts/Sparkline";
import { duration, score } from "../../lib/format";
import { useNarrow } from "../../lib/media";
import { href } from "../../lib/router";
import { StatusMark } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";
import { VirtualRows } from "../../ui/VirtualRows";
import type { RunListView } from "./runList";

interface Props {
  view: RunListView;
  chosen: ReadonlySet<string>;
  onChoose: (run: string) => void;
  onWant: (index: number) => void;
  sort: string;
  order: string;
  onSort: (sort: string, order: string) => void;
}

/** Heads, and the column of the API that each sorts by: "" is the order of submission, null none. */
const HEADS: { head: string; by: string | null; num?: boolean }[] = [
  { head: "", by: null },
  { head: "Status", by: "status" },
  { head: "Run", by: "run" },
  { head: "Kind", by: "kind" },
  { head: "Owner", by: "owner" },
  { head: "Selection score", by: "score", num: true },
  { head: "Curve", by: null },
  { head: "Done", by: "done", num: true },
  { head: "Device time", by: "device_seconds", num: true },
  { head: "Submitted", by: "" },
];

export function RunsTable({ view, chosen, onChoose, onWant, sort, order, onSort }: Props) {
  const narrow = useNarrow();
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
        return <RunRow row={row} index={index} chosen={chosen.has(row.run)} onChoose={onChoose} />;
      }}
      head={
        <div className="runs-row runs-head" role="row" aria-rowindex={1}>
          {HEADS.map(({ head, by, num }) => (
            <span key={head} role="columnheader" className={num ? "num" : undefined} aria-sort={by === null ? undefined : sorted(by, sort, order)}>
              {by === null ? head || <span className="hidden-text">Choose</span> : <SortButton head={head} by={by} sort={sort} order={order} onSort={onSort} />}
            </span>
          ))}
        </div>
      }
    />
  );
}

function sorted(by: string, sort: string, order: string): "ascending" | "descending" | "none" {
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
function SortButton({ head, by, sort, order, onSort }: SortProps) {
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
}

const RunRow = memo(function RunRow({ row, index, chosen, onChoose }: RowProps) {
  return (
    <div className="runs-row" role="row" aria-rowindex={index + 2} data-chosen={chosen}>
      <span role="cell" className="c-choose">
        <input type="checkbox" checked={chosen} onChange={() => onChoose(row.run)} aria-label={`Choose ${row.run}`} />
      </span>
      <span role="cell" className="c-status">
        <StatusMark status={row.status} />
      </span>
      <span role="cell" className="c-run">
        <a className="mono" href={href(["runs", row.run])}>
          {row.run}
        </a>
        {row.labels.map((label) => (
          <span key={label} className="tag">
            {label}
          </span>
        ))}
      </span>
      <span role="cell" className="c-kind cut">
        {row.kind}
      </span>
      <span role="cell" className="c-owner cut">
        {row.owner || "–"}
      </span>
      <span role="cell" className="c-score num">
        {score(row.score)}
      </span>
      <span role="cell" className="c-curve">
        <Sparkline curve={row.curve} />
      </span>
      <span role="cell" className="c-generation num">
        {row.generation ?? "–"}
      </span>
      <span role="cell" className="c-cost num nowrap">
        {duration(row.device_seconds)}
      </span>
      <span role="cell" className="c-when">
        <Time at={row.submitted_at} />
      </span>
    </div>
  );
});
