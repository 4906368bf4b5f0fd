/** Values along an axis: lines with their bands, seeds as thin lines, limits with their word. */
import { useMemo, useState } from "react";
import type { Lines, Series } from "../../api/types";
import { LineChart } from "../../charts/LineChart";
import type { Line } from "../../charts/lines";
import { number, score } from "../../lib/format";
import { directed, look } from "../words";
import { LogToggle } from "../LogToggle";

export function LinesPanel({ panel, frame }: { panel: Lines; frame?: Lines }) {
  const [logX, setLogX] = useState(panel.x.log);
  const [logY, setLogY] = useState(panel.y.log);
  const lines = useMemo(() => linesOf(panel.series), [panel.series]);
  const around = useMemo(() => frame && linesOf(frame.series), [frame]);
  return (
    <>
      <div className="chart-tools">
        <span className="quiet small">{directed(panel.y)}</span>
        <LogToggle axis={panel.x} log={logX} apart={20} values={() => lines.flatMap((line) => line.x)} onChange={setLogX} />
        <LogToggle axis={panel.y} log={logY} values={() => lines.flatMap((line) => line.y)} onChange={setLogY} />
      </div>
      <LineChart title={panel.title} description={panel.says} x={{ ...panel.x, log: logX }} y={{ ...panel.y, log: logY }} lines={lines}
        frame={around} limits={panel.limits} format={panel.y.whole ? number : small(lines) ? score : number} />
    </>
  );
}

/** Return whether all values are small: then four decimals tell them apart better than four digits. */
function small(lines: Line[]): boolean {
  return lines.every((line) => line.y.every((value) => value === null || (Math.abs(value) < 10 && (value === 0 || Math.abs(value) >= 0.01))));
}

function linesOf(series: Series[]): Line[] {
  const names = [...new Set(series.filter((one) => one.role !== "reference").map((one) => one.name))];
  const references = [...new Set(series.filter((one) => one.role === "reference").map((one) => one.name))];
  const seeds = new Map<string, number>();
  for (const one of series) seeds.set(one.name, (seeds.get(one.name) ?? 0) + 1);
  return series.map((one) => ({
    key: `${one.name} ${one.seed ?? ""}`,
    label: one.name,
    ...(one.role === "reference" ? { color: "var(--c-7)", dash: ["5 3", "2 3", "9 3"][references.indexOf(one.name) % 3] } : look(names.indexOf(one.name))),
    thin: (seeds.get(one.name) ?? 0) > 1,
    x: one.x,
    y: one.y,
    low: one.low,
    high: one.high,
  }));
}
