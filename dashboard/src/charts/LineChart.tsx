/** Lines over an axis. The legend says the values at the cursor, which arrow keys move; dragging zooms. */
import { type KeyboardEvent, useId, useMemo, useState } from "react";
import type { Axis, Limit } from "../api/types";
import { useWidth } from "../lib/hooks";
import { type Extent, extent, labelled, type Scale, scaleBetween, scaleOver, shows } from "../lib/scale";
import { named, said } from "../panels/words";
import { ChartTable } from "./ChartTable";
import { LineLegend, placeOf } from "./LineLegend";
import { bandOf, indexAt, type Line, lone, nearest, pathOf, pixelsOf, reduced } from "./lines";
import { Threshold } from "./Threshold";
import { useBrush } from "./useBrush";

interface Props {
  title: string;
  description: string;
  x: Axis;
  y: Axis;
  lines: Line[];
  limits?: Limit[];
  /** Lines that the axes have room for, beside those drawn: those of now, while the past is shown. */
  frame?: Line[];
  /** The same lines with more points in the part of the axis that is shown, once they are there. */
  finer?: Line[];
  onZoom?: (to: Extent | null) => void;
  format: (value: number | null | undefined) => string;
  height?: number;
}

const LEFT = 56;
const RIGHT = 14;
const TOP = 10;
const BOTTOM = 40;
/** Pixels beyond the axes that marks may reach into. */
const EDGE = 5;
const NONE: Line[] = [];

export function LineChart({ title, description, x: xAxis, y: yAxis, lines: every, limits = [], frame = NONE, finer, onZoom, format, height = 230 }: Props) {
  const [measure, width] = useWidth<HTMLDivElement>();
  const [cursor, setCursor] = useState<number | null>(null);
  const [zoom, zoomTo] = useState<Extent | null>(null);
  const setZoom = (to: Extent | null) => {
    zoomTo(to);
    onZoom?.(to);
  };
  const id = useId();
  const lines = zoom && finer ? finer : every;
  const whole = useMemo(() => extentOf([...every, ...frame], xAxis.log, limits), [every, frame, xAxis.log, limits]);
  const domain = zoom ?? whole;
  const x = useMemo(() => domain && scaleBetween(domain, [LEFT, width - RIGHT], xAxis.log), [domain, width, xAxis.log]);
  const seen = useMemo(() => (domain && x ? lines.map((line) => reduced(line, x, domain, yAxis.log)) : NONE), [lines, domain, x, yAxis.log]);
  const y = useMemo(() => {
    const values = (zoom ? seen : [...seen, ...frame]).flatMap((line) => valuesIn(line, domain));
    return scaleOver([...values, ...limits.filter((one) => one.axis === 1).map((one) => one.at)], [height - BOTTOM, TOP], yAxis.log);
  }, [seen, frame, domain, zoom, limits, height, yAxis.log]);
  const xs = useMemo(() => placesOf(lines, domain, xAxis.log), [lines, domain, xAxis.log]);
  const last = xs.length - 1;
  const at = Math.min(cursor ?? last, last);
  const brush = useBrush({
    from: LEFT,
    to: width - RIGHT,
    onPoint: (pixel) => x && setCursor(nearest(xs, x.invert(pixel))),
    onLeave: () => setCursor(null),
    onBrush: (a, b) => x && setZoom(xAxis.log || x.invert(b) > x.invert(a) ? [x.invert(a), x.invert(b)] : null),
  });
  const drawn = useMemo(
    () => x && y && seen.map((line) => ({ line, path: pathOf(line, x, y), band: bandOf(line, x, y), dots: line.thin ? [] : lone(line) })),
    [seen, x, y],
  );
  const points = useMemo(() => (x && y && limits.length > 0 ? seen.flatMap((line) => pixelsOf(line, x, y)) : []), [seen, x, y, limits]);
  if (!x || !y || !drawn || !domain || last < 0) {
    return <p className="quiet small">{lines.some((line) => line.x.length > 0) ? "No value can be shown on these axes." : "Nothing is measured yet."}</p>;
  }
  const here = xs[at] ?? 0;
  const show = (to: Extent) => whole && setZoom(to[0] <= whole[0] && to[1] >= whole[1] ? null : to);
  const keys = (event: KeyboardEvent) => {
    const far = Math.max(1, Math.round(last / 200));
    const steps: Record<string, number> = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: last };
    const next = steps[event.key];
    if (next !== undefined) setCursor(Math.max(0, Math.min(last, next)));
    else if (event.key === "+") show(around(x(here), x.range() as Extent, 0.5, x.invert));
    else if (event.key === "-") show(around(x(here), x.range() as Extent, 2, x.invert));
    else if (event.key === "0" || (event.key === "Escape" && zoom)) setZoom(null);
    else return;
    event.preventDefault();
  };
  const spoken = lines.filter((line) => !line.thin).slice(0, 8).map((line) => `${line.label} ${format(line.y[indexAt(line, here)])}`);
  const seenWidth = Math.max(1, width - LEFT - RIGHT + 2 * EDGE);
  const yTicks = labelled(y, Math.max(2, Math.round(height / 56)), yAxis.whole, said(yAxis.unit));
  const xTicks = ticksOf(x, xAxis, width);
  return (
    <figure className="chart" ref={measure}>
      <LineLegend axis={xAxis} at={cursor === null ? null : here} lines={lines} format={format} onReset={zoom ? () => setZoom(null) : null} />
      <div role="slider" tabIndex={0} aria-label={`${title}, cursor`} aria-valuemin={xs[0]} aria-valuemax={xs[last]} aria-valuenow={here}
        aria-valuetext={`${xAxis.name} ${placeOf(here, xAxis)}: ${spoken.join(", ")}`} aria-describedby={`${id}-d`} onKeyDown={keys} className="chart-focus">
        <svg width={width} height={height} role="img" aria-labelledby={`${id}-t ${id}-d`} onDoubleClick={() => setZoom(null)} {...brush.handlers}>
          <title id={`${id}-t`}>{title}</title>
          <desc id={`${id}-d`}>{`${description} Drag to zoom; the keys + and − zoom too, 0 shows all.`}</desc>
          {yTicks.map((tick) => (
            <g key={tick.at} className="grid">
              <line x1={LEFT} x2={width - RIGHT} y1={y(tick.at)} y2={y(tick.at)} />
              <text x={LEFT - 8} y={y(tick.at)} dy="0.32em" textAnchor="end">
                {tick.label}
              </text>
            </g>
          ))}
          {xTicks.map((tick) => (
            <text key={tick.at} className="tick" x={x(tick.at)} y={height - BOTTOM + 16} textAnchor={xAxis.names.length === 0 ? "middle" : x(tick.at) < LEFT + 20 ? "start" : x(tick.at) > width - RIGHT - 20 ? "end" : "middle"}>
              {tick.label}
            </text>
          ))}
          <text className="axis-name" x={width - RIGHT} y={height - 6} textAnchor="end">
            {named(xAxis)}
          </text>
          <svg x={LEFT - EDGE} y={0} width={seenWidth} height={height - BOTTOM + EDGE} viewBox={`${LEFT - EDGE} 0 ${seenWidth} ${height - BOTTOM + EDGE}`}>
            {drawn.map(({ line, band }) => band && <path key={line.key} className="line-band" fill={line.color} d={band} />)}
            {drawn.map(({ line, path }) => (
              <path key={line.key} className="line" data-thin={line.thin} stroke={line.color} strokeDasharray={line.dash} d={path} />
            ))}
            {drawn.map(({ line, dots }) =>
              dots.map((index) => {
                const [low, high] = [line.low?.[index], line.high?.[index]];
                const at = x(line.x[index] ?? 0);
                return shows(low, yAxis.log) && shows(high, yAxis.log) && <line key={`${line.key} ${index}`} className="lone-band" stroke={line.color} x1={at} x2={at} y1={y(low)} y2={y(high)} />;
              }),
            )}
            {drawn.map(({ line, dots }) => dots.map((index) => <circle key={`${line.key} ${index}`} className="lone" cx={x(line.x[index] ?? 0)} cy={y(line.y[index] ?? 0)} r="3" stroke={line.color} />))}
            {limits.map((limit) => {
              const level = limit.axis === 1;
              if (!shows(limit.at, level ? yAxis.log : xAxis.log)) return null;
              return (
                <Threshold key={`${limit.axis} ${limit.at} ${limit.says}`} level={level} at={level ? y(limit.at) : x(limit.at)}
                  ends={level ? [LEFT, width - RIGHT] : [TOP, height - BOTTOM]} says={limit.says} points={points} />
              );
            })}
            {brush.range && <rect className="brush" x={brush.range[0]} y={TOP} width={brush.range[1] - brush.range[0]} height={height - TOP - BOTTOM} />}
            <line className="cursor" data-on={cursor !== null} x1={x(here)} x2={x(here)} y1={TOP} y2={height - BOTTOM} />
          </svg>
          {lines.map((line) => {
            const point = indexAt(line, here);
            const value = line.y[point];
            if (line.thin || line.x[point] !== here || !shows(value, yAxis.log)) return null;
            return <circle key={line.key} className="dot" cx={x(here)} cy={y(value)} r="3.2" fill={line.color} />;
          })}
        </svg>
      </div>
      <ChartTable caption={title} heads={[named(xAxis), ...lines.map((line) => line.name ?? line.label)]} rows={() => tableOf(lines, xAxis, format)} />
    </figure>
  );
}

/** The ticks of the axis along which lines go: its places by their names, the last one and as many before it as there is room for. */
function ticksOf(x: Scale, axis: Axis, width: number): { at: number; label: string }[] {
  if (axis.names.length === 0) return labelled(x, Math.max(2, width / 90), axis.whole);
  const [low = 0, high = 0] = x.domain();
  const places = axis.names.map((label, at) => ({ at, label })).filter(({ at }) => at >= low && at <= high);
  const longest = Math.max(...places.map(({ label }) => label.length));
  const every = Math.max(1, Math.ceil((longest * 7 + 12) / Math.max(1, x(low + 1) - x(low))));
  return places.filter((_, index) => (places.length - 1 - index) % every === 0);
}

/** From the least to the greatest place of the lines and of the limits along x; at least as wide as 1 where all are equal. */
function extentOf(lines: Line[], log: boolean, limits: Limit[]): Extent | null {
  const beside = limits.filter((one) => one.axis === 0).map((one) => one.at);
  const found = extent(places(lines, beside, log));
  if (!found) return null;
  return found[0] < found[1] ? found : log ? [found[0] / 2, found[1] * 2] : [found[0], found[0] + 1];
}

function* places(lines: Line[], beside: number[], log: boolean): Iterable<number> {
  for (const values of [...lines.map((line) => line.x), beside]) for (const value of values) if (shows(value, log)) yield value;
}

/** The values and the ends of the band between two places. */
function valuesIn({ x, y, low, high }: Line, domain: Extent | null): (number | null | undefined)[] {
  if (!domain) return [];
  const inside = [...x.keys()].filter((index) => (x[index] ?? 0) >= domain[0] && (x[index] ?? 0) <= domain[1]);
  return inside.flatMap((index) => [y[index], low?.[index], high?.[index]]);
}

/** Places of the cursor, in order. */
function placesOf(lines: Line[], domain: Extent | null, log: boolean): number[] {
  if (!domain) return [];
  const found = new Set<number>();
  for (const value of places(lines, [], log)) if (value >= domain[0] && value <= domain[1]) found.add(value);
  return [...found].sort((a, b) => a - b);
}

/** The part of the axis that is `factor` times as wide, with the pixel where it was. */
function around(pixel: number, [low, high]: Extent, factor: number, invert: (pixel: number) => number): Extent {
  return [invert(pixel + (low - pixel) * factor), invert(pixel + (high - pixel) * factor)];
}

function tableOf(lines: Line[], axis: Axis, format: Props["format"]): (string | number)[][] {
  const values = lines.map((line) => new Map(line.x.map((place, index) => [place, line.y[index]])));
  const all = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  return all.map((place) => [placeOf(place, axis), ...values.map((known) => format(known.get(place)))]);
}
