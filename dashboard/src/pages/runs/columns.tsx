/** The columns of the list of runs, and which of them this browser hides. */
import { type ReactNode, useState } from "react";
import type { Row } from "../../api/types";
import { Sparkline } from "../../charts/Sparkline";
import { duration, NONE, plural } from "../../lib/format";
import { href } from "../../lib/router";
import { resultInWords } from "../../panels/words";
import { StatusMark, UNDECIDED } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";

export interface Column {
  id: string;
  head: string;
  /** The column of the API that the head sorts by: "" is the order of submission, null none. */
  by: string | null;
  width: string;
  num?: boolean;
  cut?: boolean;
  /** Shown in wide windows only. */
  roomy?: boolean;
  cell: (row: Row) => ReactNode;
}

export const COLUMNS: readonly Column[] = [
  { id: "status", head: "Status", by: "status", width: "122px", cell: (row) => <StatusMark status={row.undecided ? UNDECIDED : row.status} /> },
  { id: "run", head: "Run", by: "run", width: "minmax(150px, 3.2fr)", cell: (row) => <Named row={row} /> },
  { id: "kind", head: "Kind", by: "kind", width: "80px", cut: true, cell: (row) => row.kind },
  { id: "owner", head: "Owner", by: "owner", width: "minmax(64px, 0.5fr)", cut: true, cell: (row) => row.owner || "–" },
  { id: "result", head: "Result", by: "value", width: "minmax(180px, 1.6fr)", cut: true, cell: (row) => <Resulting row={row} /> },
  { id: "done", head: "Done", by: "done", width: "112px", num: true, cell: (row) => (row.generation === null && row.status !== "completed" ? NONE : plural(row.generation ?? 0, row.done_unit)) },
  { id: "curve", head: "Along the way", by: null, width: "184px", roomy: true, cell: (row) => <Along row={row} /> },
  { id: "cost", head: "Device time", by: "device_seconds", width: "86px", num: true, roomy: true, cell: (row) => duration(row.device_seconds) },
  { id: "when", head: "Submitted", by: "", width: "102px", cell: (row) => <Time at={row.submitted_at} /> },
];

/** The result as the run's head has it: of another metric in every kind. */
function Resulting({ row }: { row: Row }) {
  if (row.value === null) return <span className="quiet">{NONE}</span>;
  const better = row.better && `${row.better === "up" ? "higher" : "lower"} is better`;
  const on = [row.measured_on, row.unit !== "share" && row.unit].filter(Boolean).join("; ");
  const [, number, rest] = /^(\S+(?: %)?)(.*)$/.exec(resultInWords(row)) ?? [];
  return (
    <span title={[on, better].filter(Boolean).join("; ")}>
      <b>{number}</b>
      {rest}
      {on && <span className="under quiet cut">{on}</span>}
    </span>
  );
}

/** The curve, with what it is: it need not be of the metric of the result. */
function Along({ row }: { row: Row }) {
  return (
    <span className="along">
      <Sparkline curve={row.curve} of={row.curve_of} />
      {row.curve.length > 1 && <span className="quiet">{row.curve_of}</span>}
    </span>
  );
}

function Named({ row }: { row: Row }) {
  return (
    <>
      <a className="mono" href={href(["runs", row.run])} title={[row.run, row.note].filter(Boolean).join(": ")}>
        {row.name}
      </a>
      {row.tags.map((tag) => (
        <a key={tag} className="tag" href={href(["runs"], { tag })}>
          {tag}
        </a>
      ))}
      {row.labels.map((label) => (
        <span key={label} className="tag">
          {label}
        </span>
      ))}
    </>
  );
}

const PLACE = "forge.columns";

/** The ids of the hidden columns, and a function that hides or shows one. */
export function useHidden(): [readonly string[], (id: string) => void] {
  const [hidden, setHidden] = useState<readonly string[]>(() => (window.localStorage.getItem(PLACE) ?? "").split(" ").filter(Boolean));
  const turn = (id: string) => {
    const next = hidden.includes(id) ? hidden.filter((one) => one !== id) : [...hidden, id];
    window.localStorage.setItem(PLACE, next.join(" "));
    setHidden(next);
  };
  return [hidden, turn];
}

export function ColumnMenu({ hidden, onTurn }: { hidden: readonly string[]; onTurn: (id: string) => void }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="columns" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="button">Columns</summary>
      <div className="columns-list">
        {open && COLUMNS.filter(({ id }) => id !== "run").map(({ id, head }) => (
          <label key={id} className="check">
            <input type="checkbox" checked={!hidden.includes(id)} onChange={() => onTurn(id)} />
            <span>{head}</span>
          </label>
        ))}
      </div>
    </details>
  );
}
