/** Values along an axis: lines with their bands, seeds as a band around their median, limits with their word. Zooming asks for more points. */
import { useMemo, useState } from "react";
import { withQuery } from "../../api/client";
import type { Lines, Series } from "../../api/types";
import { LineChart } from "../../charts/LineChart";
import type { Line } from "../../charts/lines";
import { summary } from "../../charts/seeds";
import { useDebounced, useResource } from "../../lib/hooks";
import type { Extent } from "../../lib/scale";
import { usePlace } from "../context";
import { directed, inOneForm, look } from "../words";
import { LogToggle } from "../LogToggle";

export function LinesPanel({ panel, frame }: { panel: Lines; frame?: Lines }) {
  const [logX, setLogX] = useState(panel.x.log);
  const [logY, setLogY] = useState(panel.y.log);
  const lines = useMemo(() => linesOf(panel.series), [panel.series]);
  const [zoom, setZoom] = useState<Extent | null>(null);
  const finer = useFiner(panel, zoom);
  const format = useMemo(() => inOneForm(lines.flatMap((line) => line.y), panel.y.unit), [lines, panel.y.unit]);
  const around = useMemo(() => frame && linesOf(frame.series), [frame]);
  return (
    <>
      <div className="chart-tools">
        <span className="quiet small">{directed(panel.y)}</span>
        <LogToggle axis={panel.x} log={logX} apart={20} values={() => lines.flatMap((line) => line.x)} onChange={setLogX} />
        <LogToggle axis={panel.y} log={logY} values={() => lines.flatMap((line) => line.y)} onChange={setLogY} />
      </div>
      <LineChart title={panel.title} description={panel.says} x={{ ...panel.x, log: logX }} y={{ ...panel.y, log: logY }} lines={lines} finer={finer} onZoom={setZoom}
        frame={around} limits={panel.limits} format={format} />
    </>
  );
}

/** The lines between two places with as many points as there is room for, of a panel that came thinned; undefined until they are there. */
function useFiner(panel: Lines, zoom: Extent | null): Line[] | undefined {
  const { run, at, upto } = usePlace();
  const settled = useDebounced(zoom, 200);
  const path = `runs/${encodeURIComponent(run)}/panels/${panel.name}.json`;
  const wanted = panel.total === null || settled === null ? null : withQuery(path, { ...(at === null ? { upto } : { at }), from: settled[0], to: settled[1] });
  const { data, stale } = useResource<Lines>(wanted);
  return useMemo(() => (wanted === null || stale || settled !== zoom || !data ? undefined : linesOf(data.series)), [wanted, stale, settled, zoom, data]);
}

/** The lines of all series. Several seeds become their median with a band over all, and faint lines beneath it. */
function linesOf(series: Series[]): Line[] {
  const names = [...new Set(series.filter((one) => one.role !== "reference").map((one) => one.name))];
  const references = [...new Set(series.filter((one) => one.role === "reference").map((one) => one.name))];
  const groups = new Map<string, Series[]>();
  for (const one of series) groups.set(`${one.role} ${one.name}`, [...(groups.get(`${one.role} ${one.name}`) ?? []), one]);
  return [...groups].flatMap(([key, group]): Line[] => {
    const { name: label, role } = group[0] as Series;
    const drawn = { label, ...(role === "reference" ? { color: "var(--c-7)", dash: ["5 3", "2 3", "9 3"][references.indexOf(label) % 3] } : look(names.indexOf(label))) };
    const middle = summary(group);
    const single = group.map((one) => ({ ...drawn, key: `${key} ${one.seed ?? ""}`, name: one.seed === null ? label : `${label}, seed ${one.seed}`, x: one.x, y: one.y, joined: one.joined }));
    if (middle === null) return single.map((line, index) => ({ ...line, low: group[index]?.low, high: group[index]?.high }));
    return [...single.map((line) => ({ ...line, thin: true })), { ...drawn, ...middle, key, name: `${label}, median`, seeds: group.length }];
  });
}
