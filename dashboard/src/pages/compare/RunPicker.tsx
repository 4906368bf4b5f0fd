/** Finds a run by a part of its name, its owner or a label. */
import { useId, useState } from "react";
import { withQuery } from "../../api/client";
import type { Row, Rows } from "../../api/types";
import { useDebounced, useResource } from "../../lib/hooks";
import { resultInWords } from "../../panels/words";

const MOST = 12;

export function RunPicker({ without, onPick }: { without: string[]; onPick: (run: string) => void }) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const q = useDebounced(text.trim(), 150);
  const found = useResource<Rows>(open ? withQuery("runs", { q, limit: MOST + without.length }) : null);
  const rows = (found.data?.runs ?? []).filter((row) => !without.includes(row.run)).slice(0, MOST);
  const id = useId();
  const pick = (row: Row | undefined) => {
    if (!row) return;
    onPick(row.run);
    setText("");
    setOpen(false);
  };
  const keys: Record<string, () => void> = {
    ArrowDown: () => setAt(Math.min(rows.length - 1, at + 1)),
    ArrowUp: () => setAt(Math.max(0, at - 1)),
    Enter: () => pick(rows[at]),
    Escape: () => setOpen(false),
  };
  return (
    <div className="picker" onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && setOpen(false)}>
      <input
        className="input"
        role="combobox"
        aria-label="Run to add"
        aria-expanded={open}
        aria-controls={`${id}-runs`}
        aria-activedescendant={open && rows[at] ? `${id}-${at}` : undefined}
        autoComplete="off"
        placeholder="Add a run: name, owner or label"
        value={text}
        onFocus={() => setOpen(true)}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
          setOpen(true);
        }}
        onKeyDown={(event) => {
          const act = keys[event.key];
          if (!act) return;
          event.preventDefault();
          act();
        }}
      />
      <ul id={`${id}-runs`} className="picker-runs" role="listbox" aria-label="Runs that match" hidden={!open}>
        {rows.map((row, index) => (
          <li key={row.run} id={`${id}-${index}`} role="option" aria-selected={index === at} onPointerDown={(event) => event.preventDefault()} onClick={() => pick(row)} onPointerEnter={() => setAt(index)}>
            <b className="mono">{row.name}</b>
            <span className="quiet">
              {row.kind}, {row.status}
              {row.value !== null && `, ${resultInWords(row)}`}
            </span>
          </li>
        ))}
        {rows.length === 0 && found.data !== undefined && !found.stale && (
          <li role="option" aria-selected={false} aria-disabled="true" className="quiet">
            No runs match
          </li>
        )}
      </ul>
    </div>
  );
}
