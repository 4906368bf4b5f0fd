/** Lines over generations. The legend says the values at the cursor; arrow keys move it. */
import { type KeyboardEvent, type PointerEvent, useId, useMemo, useState } from "react";
import { area, curveLinear, curveStepAfter, line } from "d3-shape";
import { useWidth } from "../lib/hooks";
import { type Extent, extent, linear, padded, type Scale, tickFormat } from "../lib/scale";
import { ChartTable } from "./ChartTable";

export interface Series {
  key: string;
  label: string;
  color: string;
  values: (number | null)[];
  step?: boolean;
  dash?: string;
}

interface Props {
  title: string;
  description: string;
  xs: number[];
  series: Series[];
  /** Last place on the x axis, where that is more than `xs` has. */
  xMax?: number;
  /** Values that the y axis has room for, beside those drawn. */
  also?: (number | null)[];
  band?: { label: string; low: (number | null)[]; high: (number | null)[] };
  marks?: { x: number; y: number; label: string }[];
  thresholds?: { value: number; label: string }[];
  format: (value: number | null | undefined) => string;
  xLabel?: string;
  height?: number;
}

const LEFT = 52;
const RIGHT = 14;
const TOP = 10;
const BOTTOM = 26;

export function LineChart(props: Props) {
  const { title, description, xs, series, band, marks = [], thresholds = [], format, height = 220 } = props;
  const xLabel = props.xLabel ?? "Generation";
  const [measure, width] = useWidth<HTMLDivElement>();
  const [cursor, setCursor] = useState<number | null>(null);
  const id = useId();
  const domain = useMemo(() => yDomain(props), [props]);
  const last = xs.length - 1;
  const at = Math.min(cursor ?? last, last);
  if (last < 0 || !domain) return <p className="quiet small">Nothing is measured yet.</p>;

  const xHigh = Math.max(props.xMax ?? 0, xs[last] ?? 0, (xs[0] ?? 0) + 1);
  const x = linear([xs[0] ?? 0, xHigh], [LEFT, width - RIGHT]);
  const y = linear(domain, [height - BOTTOM, TOP]);
  const wished = Math.max(2, Math.round(height / 56));
  const tell = tickFormat(y, wished);
  const near = (event: PointerEvent<SVGSVGElement>) => {
    const spot = event.clientX - event.currentTarget.getBoundingClientRect().left;
    let best = 0;
    xs.forEach((value, index) => {
      if (Math.abs(x(value) - spot) < Math.abs(x(xs[best] ?? 0) - spot)) best = index;
    });
    setCursor(best);
  };
  const move = (event: KeyboardEvent) => {
    const to: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last };
    const next = to[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setCursor(Math.max(0, Math.min(last, next)));
  };
  const value = (one: Series) => format(one.values[at]);
  const said = `${xLabel} ${xs[at]}: ${series.map((one) => `${one.label} ${value(one)}`).join(", ")}`;
  return (
    <figure className="chart" ref={measure}>
      <figcaption className="legend">
        <span className="legend-at">
          {xLabel} <b>{xs[at]}</b>
        </span>
        {series.map((one) => (
          <span key={one.key}>
            <svg width="16" height="8" aria-hidden="true">
              <path d="M0 4h16" stroke={one.color} strokeWidth="2.5" strokeDasharray={one.dash} />
            </svg>
            {one.label} <b>{value(one)}</b>
          </span>
        ))}
        {band && (
          <span>
            <svg width="16" height="10" aria-hidden="true">
              <rect width="16" height="10" className="band" />
            </svg>
            {band.label}
          </span>
        )}
      </figcaption>
      <div role="slider" tabIndex={0} aria-label={`${title}, cursor`} aria-valuemin={xs[0]} aria-valuemax={xs[last]}
        aria-valuenow={xs[at]} aria-valuetext={said} aria-describedby={`${id}-d`} onKeyDown={move} className="chart-focus">
        <svg width={width} height={height} role="img" aria-labelledby={`${id}-t ${id}-d`} onPointerMove={near}
          onPointerDown={near} onPointerLeave={() => setCursor(null)}>
          <title id={`${id}-t`}>{title}</title>
          <desc id={`${id}-d`}>{description}</desc>
          {y.ticks(wished).map((tick) => (
            <g key={tick} className="grid">
              <line x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
              <text x={LEFT - 8} y={y(tick)} dy="0.32em" textAnchor="end">
                {tell(tick)}
              </text>
            </g>
          ))}
          {x.ticks(Math.max(2, width / 70)).filter(Number.isInteger).map((tick) => (
            <text key={tick} className="tick" x={x(tick)} y={height - 8} textAnchor="middle">
              {tick}
            </text>
          ))}
          {thresholds.map((one) => (
            <g key={one.label} className="threshold">
              <line x1={LEFT} x2={width - RIGHT} y1={y(one.value)} y2={y(one.value)} />
              <text x={LEFT + 4} y={y(one.value) - 5}>
                {one.label}
              </text>
            </g>
          ))}
          {band && <path className="band" d={bandPath(xs, band, x, y)} />}
          {series.map((one) => (
            <path key={one.key} className="line" stroke={one.color} strokeDasharray={one.dash}
              d={linePath(xs, one, x, y)} />
          ))}
          <line className="cursor" data-on={cursor !== null} x1={x(xs[at] ?? 0)} x2={x(xs[at] ?? 0)} y1={TOP} y2={height - BOTTOM} />
          {series.map((one) => {
            const here = one.values[at];
            if (here === null || here === undefined) return null;
            return <circle key={one.key} className="dot" cx={x(xs[at] ?? 0)} cy={y(here)} r="3.2" fill={one.color} />;
          })}
          {marks.map((mark) => (
            <path key={mark.x} className="mark" transform={`translate(${x(mark.x)} ${y(mark.y)})`} d="M0-6L6 0 0 6-6 0z">
              <title>{mark.label}</title>
            </path>
          ))}
        </svg>
      </div>
      <ChartTable
        caption={title}
        heads={[xLabel, ...series.map((one) => one.label)]}
        rows={xs.map((one, index) => [one, ...series.map((line) => format(line.values[index]))])}
      />
    </figure>
  );
}

const isThere = (value: number | null | undefined): value is number => value !== null && value !== undefined;

/** A line with gaps where values are missing; a step stays until the next value. */
function linePath(xs: number[], { values, step }: Series, x: Scale, y: Scale): string | undefined {
  const path = line<number | null>(
    (_, index) => x(xs[index] ?? 0),
    (value) => y(value ?? 0),
  );
  return path.defined(isThere).curve(step ? curveStepAfter : curveLinear).digits(1)(values) ?? undefined;
}

function bandPath(xs: number[], { low, high }: NonNullable<Props["band"]>, x: Scale, y: Scale): string | undefined {
  const path = area<number | null>(
    (_, index) => x(xs[index] ?? 0),
    (_, index) => y(low[index] ?? 0),
    (value) => y(value ?? 0),
  );
  return path.defined((value, index) => isThere(value) && isThere(low[index])).digits(1)(high) ?? undefined;
}

function yDomain({ series, band, thresholds = [], also = [] }: Props): Extent | null {
  const found = extent([
    ...series.flatMap((one) => one.values),
    ...(band ? [...band.low, ...band.high] : []),
    ...thresholds.map((one) => one.value),
    ...also,
  ]);
  return found && padded(found);
}
