/** Parallel coordinates over all candidates of the run, with a choice of axes and limits in numbers. */
import { useMemo, useState } from "react";
import type { PopulationRow, Population } from "../../../api/types";
import { type Axis, inside, Parallel } from "../../../charts/Parallel";
import { number, plural, short } from "../../../lib/format";
import { useResource } from "../../../lib/hooks";
import type { Extent } from "../../../lib/scale";
import { Loaded } from "../../../ui/Messages";
import { runPath, useMerging } from "../context";
import { folded, grouped } from "./foldedGenes";

/** Lines that are drawn at most: those of the newest generations. */
const MOST = 600;
const SCORES = ["perplexity", "accuracy", "search", "selection"] as const;
const NAMES = { perplexity: "perplexity (draw)", accuracy: "accuracy (draw)", selection: "score (selection)", search: "score (draw)" };

/** By part of the model, as the run's correlations name them; all of them for another species. */
const genesOf = (row: PopulationRow): Record<string, number> => row.parts ?? {};

export function ParallelPanel() {
  const { live, at } = useMerging();
  const population = useResource<Population>(runPath(live.run, "/population", { generation: "all", at }));
  return <Loaded of={population}>{(data) => <Coordinates rows={data.rows} />}</Loaded>;
}

function Coordinates({ rows: all }: { rows: PopulationRow[] }) {
  const { shown, open } = useMerging();
  const rows = useMemo(() => all.filter((row) => row.parts !== null && (row.search !== null || row.selection !== null)).slice(-MOST), [all]);
  const [chosen, setChosen] = useState<string[] | null>(null);
  const [limits, setLimits] = useState<Record<string, Extent>>({});
  const names = useMemo(() => {
    const strength = new Map(shown.genes.map((one) => [one.gene, Math.abs(one.correlation ?? 0)]));
    const genes = [...new Set(rows.flatMap((row) => Object.keys(genesOf(row))))];
    genes.sort((a, b) => (strength.get(b) ?? 0) - (strength.get(a) ?? 0));
    const alike = grouped(genes, (name) => JSON.stringify(rows.map((row) => genesOf(row)[name] ?? null)));
    return new Map(alike.map((group) => [group[0], folded(group)]));
  }, [rows, shown.genes]);
  const genes = (chosen ?? [...names.keys()].slice(0, 6)).filter((name) => names.has(name));
  const axes = useMemo<Axis[]>(
    () => [
      ...genes.map((name) => ({ key: name, label: names.get(name)?.label ?? name, values: rows.map((row) => genesOf(row)[name] ?? null) })),
      ...SCORES.filter((name) => rows.some((row) => row[name] !== null)).map((name) => ({
        key: `=${name}`,
        label: NAMES[name],
        values: rows.map((row) => row[name]),
      })),
    ],
    [genes, names, rows],
  );
  const ids = useMemo(() => rows.map((row) => row.recipe_id), [rows]);
  if (rows.length === 0) return <p className="quiet small">Nothing is measured yet.</p>;
  const kept = rows.filter((_, index) => inside(axes, limits, index));
  const limited = Object.keys(limits).length > 0;
  return (
    <>
      <Parallel axes={axes} ids={ids} champion={shown.champion?.recipe_id ?? null} limits={limits} onLimits={setLimits} onPick={open} />
      <div className="parallel-tools">
        {all.length > rows.length && all.length <= MOST && (
          <span className="quiet small">{plural(all.length - rows.length, "further candidate")} of {all.length} without a score or without weights by part: of another species, or merged by a technique without them</span>
        )}
        {all.length > MOST && <span className="quiet small">the newest {MOST} of {plural(all.length, "candidate")}</span>}
        <details>
          <summary>Axes and limits</summary>
          <div className="limit-grid">
            {[...names].map(([name, { label, title }]) => (
              <label key={name} className="check" title={title}>
                <input type="checkbox" checked={genes.includes(name)}
                  onChange={() => setChosen(genes.includes(name) ? genes.filter((one) => one !== name) : [...genes, name])} />
                <span className="mono">{label}</span>
              </label>
            ))}
          </div>
          <div className="limit-grid">
            {axes.map((axis) => (
              <Limit key={axis.key} axis={axis} limit={limits[axis.key]} onLimit={(limit) => {
                const { [axis.key]: _, ...rest } = limits;
                setLimits(limit ? { ...rest, [axis.key]: limit } : rest);
              }} />
            ))}
          </div>
        </details>
        {limited && (
          <button type="button" className="button small" onClick={() => setLimits({})}>
            Clear limits
          </button>
        )}
      </div>
      {limited && (
        <ul className="kept">
          {kept.slice(0, 12).map((row) => (
            <li key={row.recipe_id}>
              <button type="button" className="link mono" onClick={() => open(row.recipe_id)}>
                {short(row.recipe_id)}
              </button>{" "}
              <span className="quiet">
                {row.generation}/{row.slot} · {number(row.selection ?? row.search)}
              </span>
            </li>
          ))}
          {kept.length > 12 && <li className="quiet">and {kept.length - 12} more</li>}
          {kept.length === 0 && <li className="quiet">No candidate is within all limits.</li>}
        </ul>
      )}
    </>
  );
}

interface LimitProps {
  axis: Axis;
  limit: Extent | undefined;
  onLimit: (limit: Extent | null) => void;
}

function Limit({ axis, limit, onLimit }: LimitProps) {
  const put = (side: 0 | 1, text: string) => {
    const next: Extent = limit ? [...limit] : [-Infinity, Infinity];
    next[side] = text === "" ? (side ? Infinity : -Infinity) : Number(text);
    onLimit(next[0] === -Infinity && next[1] === Infinity ? null : next);
  };
  const text = (value: number | undefined) => (value === undefined || !Number.isFinite(value) ? "" : String(Number(value.toPrecision(6))));
  return (
    <fieldset className="limit">
      <legend className="mono">{axis.label}</legend>
      <input className="input" type="number" step="any" aria-label={`${axis.label} from`} placeholder="from" value={text(limit?.[0])} onChange={(event) => put(0, event.target.value)} />
      <input className="input" type="number" step="any" aria-label={`${axis.label} to`} placeholder="to" value={text(limit?.[1])} onChange={(event) => put(1, event.target.value)} />
    </fieldset>
  );
}
