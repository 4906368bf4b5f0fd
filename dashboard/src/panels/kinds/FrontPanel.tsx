/** Points in two of several measures: the front, what is dominated, the chosen point, limits. */
import { curveStepAfter, curveStepBefore, line, symbol, symbolCircle, symbolSquare, symbolTriangle } from "d3-shape";
import { useId, useState } from "react";
import type { Axis, Front, Point } from "../../api/types";
import { ChartTable } from "../../charts/ChartTable";
import { plural, short } from "../../lib/format";
import { useWidth } from "../../lib/hooks";
import { labelled, scaleOver, shows } from "../../lib/scale";
import { usePlace } from "../context";
import { LogToggle } from "../LogToggle";
import { directed, look, named, said, valued } from "../words";

const LEFT = 58;
const BOTTOM = 40;
const TOP = 16;
const RIGHT = 16;
const HEIGHT = 300;
const SHAPES = [symbolCircle, symbolSquare, symbolTriangle];

export function FrontPanel({ panel }: { panel: Front }) {
  const [pair, setPair] = useState<[number, number]>([0, 1]);
  const [logs, setLogs] = useState(() => panel.axes.map((axis) => axis.log));
  const [a, b] = pair;
  const xAxis = panel.axes[a];
  const yAxis = panel.axes[b];
  if (!xAxis || !yAxis) return null;
  return (
    <>
      <div className="chart-tools">
        {panel.axes.length > 2 && [0, 1].map((side) => (
          <select key={side} className="select" aria-label={side ? "Vertical axis" : "Horizontal axis"} value={pair[side]}
            onChange={(event) => setPair(side ? [a, Number(event.target.value)] : [Number(event.target.value), b])}>
            {panel.axes.map((axis, index) => (
              <option key={axis.name} value={index}>
                {axis.name}
              </option>
            ))}
          </select>
        ))}
        {[...new Set(pair)].map((index) => {
          const axis = panel.axes[index];
          return axis && (
            <LogToggle key={index} axis={axis} log={logs[index] ?? false} values={() => panel.points.map((point) => point.values[index] ?? null)}
              onChange={(log) => setLogs(logs.map((old, other) => (other === index ? log : old)))} />
          );
        })}
      </div>
      <Drawn panel={panel} a={a} b={b} xAxis={{ ...xAxis, log: logs[a] ?? false }} yAxis={{ ...yAxis, log: logs[b] ?? false }} />
    </>
  );
}

interface DrawnProps {
  panel: Front;
  a: number;
  b: number;
  xAxis: Axis;
  yAxis: Axis;
}

function Drawn({ panel, a, b, xAxis, yAxis }: DrawnProps) {
  const { pick } = usePlace();
  const [measure, width] = useWidth<HTMLDivElement>();
  const [on, setOn] = useState<string | null>(null);
  const id = useId();
  const bound = (axis: number) => panel.limits.filter((limit) => limit.axis === (axis === a ? 0 : 1)).map((limit) => limit.at);
  const x = scaleOver([...panel.points.map((point) => point.values[a]), ...bound(a)], [LEFT, width - RIGHT], xAxis.log, 0.12);
  const y = scaleOver([...panel.points.map((point) => point.values[b]), ...bound(b)], [HEIGHT - BOTTOM, TOP], yAxis.log, 0.12);
  const told = panel.points.find((point) => point.id === on);
  const series = [...new Set(panel.points.map((point) => point.series))];
  const kept = panel.points.filter((point) => point.kept);
  const nameOf = (point: Point) => point.label || short(point.id);
  if (!x || !y) return <p className="quiet small">No point can be shown on these axes.</p>;
  const placed = panel.points.flatMap((point) => {
    const [left, up] = [point.values[a], point.values[b]];
    return shows(left, xAxis.log) && shows(up, yAxis.log) ? [{ point, left: x(left), up: y(up) }] : [];
  });
  // What is drawn last lies above the others.
  const rank = ({ point }: { point: Point }) => (point.id === panel.chosen ? 2 : point.kept ? 1 : 0);
  placed.sort((p, q) => rank(p) - rank(q));
  const stairs = line<(typeof placed)[number]>((one) => one.left, (one) => one.up).digits(1).curve(xAxis.better === "down" ? curveStepAfter : curveStepBefore);
  const front = placed.filter(({ point }) => point.kept).sort((p, q) => p.left - q.left);
  const describe = (point: Point) =>
    `${point.kept ? "" : "dominated "}${nameOf(point)}: ${panel.axes.map((axis, n) => `${axis.name} ${valued(point.values[n], axis.unit)}`).join(", ")}${point.id === panel.chosen ? ", chosen" : ""}`;
  return (
    <figure className="chart" ref={measure}>
      <figcaption className="legend">
        {told ? (
          <span>
            <span>{nameOf(told)}</span>
            {panel.axes.map((axis, index) => (
              <span key={axis.name}>
                {axis.name} <b>{valued(told.values[index], axis.unit)}</b>
              </span>
            ))}
          </span>
        ) : (
          <span>
            {plural(kept.length, "point")} on the front, {panel.points.length - kept.length} dominated
            {placed.length < panel.points.length && `; ${panel.points.length - placed.length} cannot be shown on a logarithmic axis`}
          </span>
        )}
        {series.length > 1 && series.map((name, index) => (
          <span key={name}>
            <svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">
              <path d={symbol(SHAPES[index % SHAPES.length], 60)() ?? undefined} fill={look(index).color} />
            </svg>
            {name || "other"}
          </span>
        ))}
      </figcaption>
      <svg width={width} height={HEIGHT} role="group" aria-labelledby={`${id}-t`} aria-describedby={`${id}-d`}>
        <title id={`${id}-t`}>{panel.title}</title>
        <desc id={`${id}-d`}>{`${directed(xAxis)}, against ${directed(yAxis)}. ${panel.says}`}</desc>
        {labelled(y, 5, false, said(yAxis.unit)).map((tick) => (
          <g key={tick.at} className="grid">
            <line x1={LEFT} x2={width - RIGHT} y1={y(tick.at)} y2={y(tick.at)} />
            <text x={LEFT - 8} y={y(tick.at)} dy="0.32em" textAnchor="end">
              {tick.label}
            </text>
          </g>
        ))}
        {labelled(x, Math.max(2, width / 110), false, said(xAxis.unit)).map((tick) => (
          <text key={tick.at} x={x(tick.at)} y={HEIGHT - BOTTOM + 16} textAnchor="middle">
            {tick.label}
          </text>
        ))}
        <text className="axis-name" x={width - RIGHT} y={HEIGHT - 6} textAnchor="end">
          {directed(xAxis)}
        </text>
        <text className="axis-name" x={LEFT} y={TOP} dx="4" dy="-4">
          {directed(yAxis)}
        </text>
        {panel.axes.length === 2 && a !== b && <path className="front-line" d={stairs(front) ?? undefined} />}
        {placed.map(({ point, left, up }) => {
          const number_ = series.indexOf(point.series);
          const chosen = point.id === panel.chosen;
          const shape = chosen ? "M0-8L8 0 0 8-8 0z" : symbol(SHAPES[number_ % SHAPES.length], point.kept ? 110 : 40)();
          return (
            <path key={point.id} className="point" transform={`translate(${left} ${up})`} d={shape ?? undefined} data-kept={point.kept} data-champion={chosen}
              data-on={point.id === on} style={series.length > 1 && !chosen ? { fill: look(number_).color, fillOpacity: point.kept ? 1 : 0.4 } : undefined}
              tabIndex={pick ? 0 : undefined} role={pick ? "button" : "img"} aria-label={describe(point)}
              onPointerEnter={() => setOn(point.id)} onFocus={() => setOn(point.id)} onPointerLeave={() => setOn(null)} onClick={() => pick?.(point.id)}
              onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), pick?.(point.id))} />
          );
        })}
        {panel.limits.map((limit, number_) => {
          const level = limit.axis === 1;
          if (!shows(limit.at, level ? yAxis.log : xAxis.log)) return null;
          const [left, up] = level ? [LEFT, y(limit.at)] : [x(limit.at), TOP];
          // The words of a line stand above it; of two lines that are close the lower one has them beneath.
          const under = level && panel.limits.some((other, at) => other.axis === 1 && at !== number_ && up >= y(other.at) && up - y(other.at) < 18);
          return (
            <g key={`${limit.axis} ${limit.at}`} className="threshold">
              <line x1={left} x2={level ? width - RIGHT : left} y1={up} y2={level ? up : HEIGHT - BOTTOM} />
              <text x={level ? width - RIGHT - 4 : left + 4} y={up + (!level ? 10 : under ? 13 : -5)} textAnchor={level ? "end" : undefined}>{limit.says}</text>
            </g>
          );
        })}
      </svg>
      <ChartTable
        caption={panel.title}
        heads={["Point", ...(series.length > 1 ? ["Series"] : []), ...panel.axes.map(named), "On the front", "Chosen"]}
        rows={() => panel.points.map((point) => [
          pick ? (
            <button key="pick" type="button" className="link" onClick={() => pick(point.id)}>
              {nameOf(point)}
            </button>
          ) : nameOf(point),
          ...(series.length > 1 ? [point.series] : []),
          ...point.values.map((value, index) => valued(value, panel.axes[index]?.unit ?? "")),
          point.kept ? "yes" : "no",
          point.id === panel.chosen ? "yes" : "",
        ])}
      />
    </figure>
  );
}
