/** Lines over generations. The legend says the values at the cursor; arrow keys move it. */
import { type KeyboardEvent, type PointerEvent, useId, useMemo, useState } from "react";
import { useWidth } from "../lib/hooks";
import { type Extent, extent, linear, padded, tickFormat, ticks, wholeTicks } from "../lib/scale";
import { ChartTable } from "./ChartTable";
import { bandPath, linePath, stepPath } from "./paths";

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
  const yTicks = ticks(domain, Math.max(2, Math.round(height / 56)));
  const tell = tickFormat(yTicks);
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
          {yTicks.map((tick) => (
            <g key={tick} className="grid">
              <line x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
              <text x={LEFT - 8} y={y(tick)} dy="0.32em" textAnchor="end">
                {tell(tick)}
              </text>
            </g>
          ))}
          {wholeTicks([xs[0] ?? 0, xHigh], Math.max(2, width / 70)).map((tick) => (
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
          {band && <path className="band" d={bandPath(xs, band.low, band.high, x, y)} />}
          {series.map((one) => (
            <path key={one.key} className="line" stroke={one.color} strokeDasharray={one.dash}
              d={(one.step ? stepPath : linePath)(xs, one.values, x, y)} />
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

function yDomain({ series, band, thresholds = [], also = [] }: Props): Extent | null {
  const found = extent([
    ...series.flatMap((one) => one.values),
    ...(band ? [...band.low, ...band.high] : []),
    ...thresholds.map((one) => one.value),
    ...also,
  ]);
  return found && padded(found);
}
