/** The run's curves over its generations. While one looks at the past, the axes stay those of now. */
import type { GenerationRow, Run } from "../../../api/types";
import { LineChart, type Series } from "../../../charts/LineChart";
import { score } from "../../../lib/format";
import { useMerging } from "../context";

const HUES = ["var(--c-1)", "var(--c-2)", "var(--c-3)", "var(--c-4)", "var(--c-5)", "var(--c-6)", "var(--c-7)"];
const DASHES = [undefined, undefined, undefined, undefined, "6 3", "6 3", "6 3"];

const around = (row: GenerationRow, sign: number) =>
  row.mean === null || row.spread === null ? null : row.mean + sign * row.spread;

function xMaxOf(live: Run): number {
  return live.generations.at(-1)?.generation ?? 0;
}

/** Candidates on the items that their generation drew. The champion stands on others: see `ChampionChart`. */
export function FitnessChart() {
  const { live, shown } = useMerging();
  const rows = shown.generations;
  const series: Series[] = [
    { key: "best", label: "best", color: "var(--c-1)", values: rows.map((row) => row.best) },
    { key: "mean", label: "mean", color: "var(--c-7)", values: rows.map((row) => row.mean), dash: "5 3" },
  ];
  return (
    <LineChart
      title="Candidates' fitness by generation"
      description={`Best and mean of ${rows.length} generations, each on its own draw of the search slice.`}
      xs={rows.map((row) => row.generation)}
      xMax={xMaxOf(live)}
      series={series}
      also={live.generations.flatMap((row) => [row.best, around(row, 1), around(row, -1)])}
      band={{ label: "mean ± spread", low: rows.map((row) => around(row, -1)), high: rows.map((row) => around(row, 1)) }}
      format={score}
      height={210}
    />
  );
}

export function ChampionChart() {
  const { live, shown } = useMerging();
  const rows = shown.generations;
  const marks = rows.flatMap((row) =>
    row.changed && row.champion !== null
      ? [{ x: row.generation, y: row.champion, label: `new champion in generation ${row.generation}: ${score(row.champion)}` }]
      : [],
  );
  return (
    <LineChart
      title="Champion's fitness by generation"
      description={`The champion on the selection slice; ${marks.length} changes of champion are marked.`}
      xs={rows.map((row) => row.generation)}
      xMax={xMaxOf(live)}
      series={[{ key: "champion", label: "champion", color: "var(--champion-mark)", values: rows.map((row) => row.champion), step: true }]}
      also={live.generations.map((row) => row.champion)}
      marks={marks}
      format={score}
      height={170}
    />
  );
}

export function ComponentsChart() {
  const { live, shown } = useMerging();
  const rows = shown.generations;
  const names = [...new Set(live.generations.flatMap((row) => Object.keys(row.components)))];
  const series = names.map((name, index) => ({
    key: name,
    label: name,
    color: HUES[index % HUES.length] ?? "var(--c-1)",
    dash: DASHES[index % DASHES.length],
    values: rows.map((row) => row.components[name] ?? null),
    step: true,
  }));
  return (
    <LineChart
      title="Components of the champion by generation"
      description={`${names.join(", ")}, each relative to the best source in it.`}
      xs={rows.map((row) => row.generation)}
      xMax={xMaxOf(live)}
      series={series}
      also={live.generations.flatMap((row) => names.map((name) => row.components[name] ?? null))}
      format={score}
    />
  );
}

export function DiversityChart() {
  const { live, shown } = useMerging();
  const rows = shown.generations;
  const limits = live.thresholds;
  const { low: warn, reseed } = limits;
  return (
    <LineChart
      title="Diversity by generation"
      description="Mean distance of the candidates' task vectors, relative to the sources' mean distance."
      xs={rows.map((row) => row.generation)}
      xMax={xMaxOf(live)}
      series={[{ key: "diversity", label: "diversity", color: "var(--c-3)", values: rows.map((row) => row.diversity) }]}
      also={[0, ...live.generations.map((row) => row.diversity)]}
      thresholds={[
        { value: warn, label: `below ${warn}: warns` },
        ...(reseed === warn ? [] : [{ value: reseed, label: `below ${reseed}: reseeds` }]),
      ]}
      format={(value) => (value === null || value === undefined ? "–" : value.toFixed(3))}
    />
  );
}
