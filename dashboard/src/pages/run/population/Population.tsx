/** The candidates of a generation, or of all: which columns stay, and what differs. */
import { useMemo } from "react";
import type { Population as Answer } from "../../../api/types";
import { useResource, useStored } from "../../../lib/hooks";
import { plural } from "../../../lib/format";
import { useQuery } from "../../../lib/router";
import { Empty, Loaded } from "../../../ui/Messages";
import { runPath, useMerging } from "../context";
import { columnsOf, differs } from "./columns";
import { PopulationTable } from "./PopulationTable";

export default function Population() {
  const { live, shown, at } = useMerging();
  const [generation, setGeneration] = useQuery("generation");
  const answer = useResource<Answer>(runPath(live.run, "/population", { at, generation: generation || null }));
  const complete = shown.generations.map((row) => row.generation);
  const newest = Math.max(shown.generation ?? 0, ...complete, 0);
  const numbers = answer.data?.generations?.toReversed() ?? Array.from({ length: newest + 1 }, (_, index) => newest - index);
  return (
    <Loaded of={answer}>
      {(data) => (
        <div className={answer.stale ? "stale" : undefined}>
          <Rows
            data={data}
            pick={
              <select className="select" aria-label="Generation" value={generation} onChange={(event) => setGeneration(event.target.value)}>
                <option value="">Newest generation</option>
                <option value="all">All generations</option>
                {numbers.map((number) => (
                  <option key={number} value={number}>
                    Generation {number}
                  </option>
                ))}
              </select>
            }
          />
        </div>
      )}
    </Loaded>
  );
}

function Rows({ data, pick }: { data: Answer; pick: React.ReactNode }) {
  const { live, shown } = useMerging();
  const [hidden, setHidden] = useStored<string[]>("population.hidden", ["digest"]);
  const [only, setOnly] = useStored("population.only", false);
  const columns = useMemo(() => {
    const given = [...live.sources, ...(live.base ? [live.base] : [])];
    return columnsOf(data.rows, new Map(given.map((one) => [one.recipe_id ?? "", one.name])));
  }, [data.rows, live.sources, live.base]);
  const visible = useMemo(
    () => columns.filter((column) => !hidden.includes(column.key) && (!only || differs(column, data.rows))),
    [columns, hidden, only, data.rows],
  );
  return (
    <>
      <div className="filters">
        {pick}
        <label className="check">
          <input type="checkbox" checked={only} onChange={(event) => setOnly(event.target.checked)} />
          Only differences
        </label>
        <details className="columns">
          <summary className="button">Columns</summary>
          <div className="columns-list">
            {columns.map((column) => (
              <label key={column.key} className="check">
                <input
                  type="checkbox"
                  checked={!hidden.includes(column.key)}
                  onChange={() => setHidden(hidden.includes(column.key) ? hidden.filter((key) => key !== column.key) : [...hidden, column.key])}
                />
                <span className={column.mono ? "mono" : undefined}>{column.label}</span>
              </label>
            ))}
          </div>
        </details>
        <span className="quiet small" role="status">
          {plural(data.rows.length, "candidate")}
          {only && columns.length > visible.length && `, ${plural(columns.length - visible.length, "column")} hidden`}
        </span>
      </div>
      {data.rows.length === 0 ? (
        <div className="sheet">
          <Empty title="No candidates yet">
            <p>Candidates appear as they are built.</p>
          </Empty>
        </div>
      ) : (
        <PopulationTable rows={data.rows} columns={visible} champion={shown.champion?.recipe_id ?? null} />
      )}
    </>
  );
}
