/** Parallel coordinates: an axis a number, a line a candidate. Dragging along an axis keeps what lies in between. */
import { line } from "d3-shape";
import { type PointerEvent, useId, useMemo, useRef, useState } from "react";
import { number, short } from "../lib/format";
import { useWidth } from "../lib/hooks";
import { type Extent, extent, linear } from "../lib/scale";

export interface Axis {
  key: string;
  label: string;
  values: (number | null)[];
}

interface Props {
  axes: Axis[];
  ids: string[];
  champion: string | null;
  limits: Record<string, Extent>;
  onLimits: (limits: Record<string, Extent>) => void;
  onPick: (id: string) => void;
}

const TOP = 40;
const HEIGHT = 320;
const BOTTOM = 22;
const EDGE = 56;
const GAP = 92;
const path = line<[number, number | null]>(
  ([place]) => place,
  ([, height]) => height ?? 0,
)
  .defined(([, height]) => height !== null)
  .digits(1);

export function inside(axes: Axis[], limits: Record<string, Extent>, index: number): boolean {
  return axes.every((axis) => {
    const limit = limits[axis.key];
    const value = axis.values[index];
    return !limit || (value !== null && value !== undefined && value >= limit[0] && value <= limit[1]);
  });
}

export function Parallel({ axes, ids, champion, limits, onLimits, onPick }: Props) {
  const [measure, seen] = useWidth<HTMLDivElement>(900);
  const [on, setOn] = useState<number | null>(null);
  const drag = useRef<{ key: string; from: number } | null>(null);
  const id = useId();
  const width = Math.max(seen, 2 * EDGE + GAP * (axes.length - 1));
  const x = (index: number) => EDGE + (index * (width - 2 * EDGE)) / Math.max(1, axes.length - 1);
  const scales = useMemo(
    () => axes.map((axis) => {
      const domain = wide(extent(axis.values) ?? [0, 1]);
      return { domain, y: linear(domain, [HEIGHT - BOTTOM, TOP]) };
    }),
    [axes],
  );
  const lines = useMemo(
    () => ids.map((_, index) => {
      const points = axes.map((axis, n): [number, number | null] => {
        const value = axis.values[index];
        return [x(n), value === null || value === undefined ? null : scales[n]?.y(value) ?? 0];
      });
      // A point without neighbours is a short stroke: a path of one point shows nothing.
      const lone = points.filter(([, height], n) => height !== null && (points[n - 1]?.[1] ?? null) === null && (points[n + 1]?.[1] ?? null) === null);
      return (path(points) ?? "") + lone.map(([place, height]) => `M${place - 4} ${height}h8`).join("");
    }),
    // x follows from the width and the axes.
    [ids, axes, scales, width],
  );
  const kept = ids.map((_, index) => inside(axes, limits, index));
  const order = ids.map((_, index) => index).sort((a, b) => rank(a) - rank(b));
  function rank(index: number): number {
    return ids[index] === champion ? 2 : kept[index] ? 1 : 0;
  }
  const lineOf = (target: EventTarget) => {
    const index = target instanceof SVGPathElement ? target.dataset.index : undefined;
    return index === undefined ? null : Number(index);
  };
  const spot = (event: PointerEvent<SVGRectElement>) => event.clientY - (event.currentTarget.ownerSVGElement?.getBoundingClientRect().top ?? 0);
  const begin = (event: PointerEvent<SVGRectElement>, key: string) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    drag.current = { key, from: spot(event) };
  };
  const move = (event: PointerEvent<SVGRectElement>, n: number) => {
    const held = drag.current;
    const scale = scales[n];
    const axis = axes[n];
    if (!held || !scale || axis?.key !== held.key) return;
    const ends = [held.from, spot(event)].map((pixel) => scale.y.invert(Math.max(TOP, Math.min(HEIGHT - BOTTOM, pixel))));
    onLimits({ ...limits, [axis.key]: [Math.min(...ends), Math.max(...ends)] });
  };
  const end = (event: PointerEvent<SVGRectElement>) => {
    const held = drag.current;
    drag.current = null;
    if (!held || Math.abs(spot(event) - held.from) > 3) return;
    const { [held.key]: _, ...rest } = limits;
    onLimits(rest);
  };
  const told = on === null ? null : ids[on];
  return (
    <div className="chart" ref={measure}>
      <p className="legend" aria-live="off">
        {told ? (
          <span>
            <span className="mono">{short(told)}</span>
            {axes.slice(-4).map((axis) => (
              <span key={axis.key}>
                {axis.label} <b>{number(axis.values[on ?? 0])}</b>
              </span>
            ))}
          </span>
        ) : (
          <span>
            <b>{kept.filter(Boolean).length}</b> of {ids.length} candidates
          </span>
        )}
      </p>
      <div className="scroll-x" tabIndex={0} role="region" aria-label="Axes">
        <svg className="parallel" data-many={ids.length > 120} width={width} height={HEIGHT} role="img" aria-labelledby={`${id}-t ${id}-d`}
          onPointerOver={(event) => setOn(lineOf(event.target))} onPointerLeave={() => setOn(null)}
          onClick={(event) => {
            const picked = ids[lineOf(event.target) ?? -1];
            if (picked) onPick(picked);
          }}>
          <title id={`${id}-t`}>Candidates side by side</title>
          <desc id={`${id}-d`}>{`One line for each of ${ids.length} candidates across ${axes.map((axis) => axis.label).join(", ")}.`}</desc>
          {order.map((index) => (
            <path key={ids[index]} d={lines[index]} data-index={index} data-out={!kept[index]} data-champion={ids[index] === champion} />
          ))}
          {on !== null && <path className="pointed" d={lines[on]} />}
          {axes.map((axis, n) => {
            const scale = scales[n];
            const limit = limits[axis.key];
            if (!scale) return null;
            return (
              <g key={axis.key} className="axis" transform={`translate(${x(n)} 0)`}>
                <text className="name" y={n % 2 ? 10 : 24} dx={n === 0 ? -EDGE + 4 : n === axes.length - 1 ? EDGE - 4 : 0} textAnchor={n === 0 ? "start" : n === axes.length - 1 ? "end" : "middle"}>
                  {axis.label}
                </text>
                <line y1={TOP} y2={HEIGHT - BOTTOM} />
                <text y={TOP} dx="6" dy="0.3em">
                  {number(scale.domain[1])}
                </text>
                <text y={HEIGHT - BOTTOM} dx="6" dy="0.3em">
                  {number(scale.domain[0])}
                </text>
                {limit && <rect className="brush" x="-7" width="14" y={scale.y(Math.min(limit[1], scale.domain[1]))} height={Math.max(1, scale.y(Math.max(limit[0], scale.domain[0])) - scale.y(Math.min(limit[1], scale.domain[1])))} />}
                <rect className="reach" x="-14" width="28" y={TOP - 6} height={HEIGHT - TOP - BOTTOM + 12}
                  onPointerDown={(event) => begin(event, axis.key)} onPointerMove={(event) => move(event, n)} onPointerUp={end} />
              </g>
            );
          })}
        </svg>
      </div>
    </div>
  );
}

function wide([low, high]: Extent): Extent {
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}
