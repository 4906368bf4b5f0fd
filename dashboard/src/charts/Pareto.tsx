/** The Pareto front in two of its objectives. A point is a candidate: click it for its recipe. */
import { curveStepBefore, line } from "d3-shape";
import { useId, useState } from "react";
import type { FrontPoint, ParetoFront } from "../api/types";
import { number, plural, short } from "../lib/format";
import { useWidth } from "../lib/hooks";
import { extent, linear, padded, tickFormat } from "../lib/scale";
import { ChartTable } from "./ChartTable";

const LEFT = 58;
const BOTTOM = 40;
const TOP = 12;
const RIGHT = 16;
const HEIGHT = 300;
const Y_TICKS = 5;

interface Props {
  front: ParetoFront;
  champion: string | null;
  onPick: (candidate: string) => void;
}

export function Pareto({ front, champion, onPick }: Props) {
  const [measure, width] = useWidth<HTMLDivElement>();
  const [axes, setAxes] = useState<[number, number]>([0, Math.min(1, front.axes.length - 1)]);
  const names = front.axes.map((axis) => axis.name);
  const [on, setOn] = useState<string | null>(null);
  const id = useId();
  const [a, b] = axes;
  const placed = (rows: FrontPoint[], kept: boolean) =>
    rows.map((one) => ({ id: one.candidate, x: one.values[a] ?? 0, y: one.values[b] ?? 0, all: one.values, kept }));
  const points = placed(front.candidates, true).sort((p, q) => p.x - q.x);
  const cloud = placed(front.dominated, false);
  const all = [...cloud, ...points];
  const xDomain = padded(extent(all.map((p) => p.x)) ?? [0, 1], 0.12);
  const yDomain = padded(extent(all.map((p) => p.y)) ?? [0, 1], 0.12);
  const x = linear(xDomain, [LEFT, width - RIGHT]);
  const y = linear(yDomain, [HEIGHT - BOTTOM, TOP]);
  const xWished = Math.max(2, width / 110);
  const tellX = tickFormat(x, xWished);
  const tellY = tickFormat(y, Y_TICKS);
  const stairs = line<(typeof points)[number]>((p) => x(p.x), (p) => y(p.y)).curve(curveStepBefore).digits(1);
  const axisName = (axis: number) => `${names[axis]} (${front.axes[axis]?.better === "up" ? "higher" : "lower"} is better)`;
  const told = all.find((point) => point.id === on);
  return (
    <figure className="chart" ref={measure}>
      <figcaption className="legend">
        {told ? (
          <span>
            <span className="mono">{short(told.id)}</span>
            {names.map((name, index) => (
              <span key={name}>
                {name} <b>{number(told.all[index])}</b>
              </span>
            ))}
          </span>
        ) : (
          <span>
            {plural(points.length, "candidate")} on the front, {cloud.length} dominated
            {front.hypervolume !== null && (
              <>
                ; hypervolume <b>{number(front.hypervolume)}</b>
              </>
            )}
          </span>
        )}
      </figcaption>
      {names.length > 2 && (
        <div className="filters">
          {[0, 1].map((axis) => (
            <select key={axis} className="select" aria-label={axis ? "Vertical axis" : "Horizontal axis"} value={axes[axis]}
              onChange={(event) => setAxes(axis ? [a, Number(event.target.value)] : [Number(event.target.value), b])}>
              {names.map((name, index) => (
                <option key={name} value={index}>
                  {name}
                </option>
              ))}
            </select>
          ))}
        </div>
      )}
      <svg width={width} height={HEIGHT} role="group" aria-labelledby={`${id}-t`} aria-describedby={`${id}-d`}>
        <title id={`${id}-t`}>Pareto front</title>
        <desc id={`${id}-d`}>{`${axisName(a)} against ${axisName(b)}, ${points.length} candidates on the front.`}</desc>
        {y.ticks(Y_TICKS).map((tick) => (
          <g key={tick} className="grid">
            <line x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 8} y={y(tick)} dy="0.32em" textAnchor="end">
              {tellY(tick)}
            </text>
          </g>
        ))}
        {x.ticks(xWished).map((tick) => (
          <text key={tick} x={x(tick)} y={HEIGHT - BOTTOM + 16} textAnchor="middle">
            {tellX(tick)}
          </text>
        ))}
        <text className="axis-name" x={width - RIGHT} y={HEIGHT - 6} textAnchor="end">
          {axisName(a)}
        </text>
        <text className="axis-name" x={LEFT} y={TOP} dx="4" dy="4">
          {axisName(b)}
        </text>
        {a !== b && <path className="front-line" d={stairs(points) ?? undefined} />}
        {all.map((point) => (
          <circle key={point.id} className="point" cx={x(point.x)} cy={y(point.y)} r={point.kept ? 6 : 3.5} tabIndex={0} data-kept={point.kept} role="button"
            data-champion={point.id === champion} data-on={point.id === on}
            aria-label={`${point.kept ? "" : "dominated "}candidate ${short(point.id)}: ${names.map((name, n) => `${name} ${number(point.all[n])}`).join(", ")}`}
            onPointerEnter={() => setOn(point.id)} onFocus={() => setOn(point.id)} onClick={() => onPick(point.id)}
            onKeyDown={(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), onPick(point.id))} />
        ))}
      </svg>
      <ChartTable
        caption="Pareto front"
        heads={["Candidate", ...names, "On the front"]}
        rows={[...points, ...cloud].map((point) => [
          <button key="pick" type="button" className="link mono" onClick={() => onPick(point.id)}>
            {short(point.id)}
          </button>,
          ...point.all.map((value) => number(value)),
          point.kept ? "yes" : "no",
        ])}
      />
    </figure>
  );
}
