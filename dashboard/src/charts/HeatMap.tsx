/** A heat map: colour says how much; the value stands in the caption at the pointer or the focus, and in the table. */
import { type KeyboardEvent, useId, useMemo, useRef, useState } from "react";
import { css, inkOn, mix, type Rgb, themed } from "../lib/colour";
import { number } from "../lib/format";
import { useWidth } from "../lib/hooks";
import { extent } from "../lib/scale";
import { useTheme } from "../ui/frame/theme";
import { ChartTable } from "./ChartTable";

interface Props {
  title: string;
  rows: string[];
  columns: string[];
  values: (number | null)[][];
  /** More numbers of each column, for the caption and the table. */
  beside?: { label: string; values: (number | null)[] }[];
}

const LEFT = 110;
const TALL = 40;

export function HeatMap({ title, rows, columns, values, beside = [] }: Props) {
  const [measure, seen] = useWidth<HTMLDivElement>(900);
  const [at, setAt] = useState<[number, number] | null>(null);
  const [theme] = useTheme();
  // Read again when the theme is another one: the ink on a cell goes by the colour that it has.
  const ends = useMemo(() => ({ theme, none: themed("--heat-0"), much: themed("--heat-1"), plus: themed("--c-1"), minus: themed("--c-2") }), [theme]);
  const grid = useRef<SVGSVGElement>(null);
  const id = useId();
  const range = extent(values.flat()) ?? [0, 1];
  const diverging = range[0] < -0.005; // less is written as 0.00
  const most = diverging ? Math.max(Math.abs(range[0]), Math.abs(range[1])) : range[1];
  const least = diverging ? -most : Math.min(0, range[0]);
  const cell = Math.max(24, Math.min(132, (seen - LEFT - 28) / Math.max(1, columns.length)));
  const roomy = cell >= 72;
  const width = LEFT + cell * columns.length + (roomy ? 0 : 28); // the last slanted name has room
  const head = roomy ? 28 : 84;
  const height = head + TALL * rows.length + 4;
  const share = (value: number) => (diverging ? Math.abs(value) / (most || 1) : (value - least) / (most - least || 1));
  const ground = (value: number): Rgb => mix(diverging ? (value < 0 ? ends.minus : ends.plus) : ends.much, ends.none, share(value));
  const fill = (value: number | null) => (value === null ? "transparent" : css(ground(value)));
  const move = (event: KeyboardEvent, row: number, column: number) => {
    const steps: Record<string, [number, number]> = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const next: [number, number] = [
      Math.max(0, Math.min(rows.length - 1, row + step[0])),
      Math.max(0, Math.min(columns.length - 1, column + step[1])),
    ];
    grid.current?.querySelector<SVGRectElement>(`[data-at="${next.join("-")}"]`)?.focus();
  };
  const focusable = at ?? [0, 0];
  const told = at && `${rows[at[0]]} in ${columns[at[1]]}: `;
  return (
    <figure className="chart" ref={measure}>
      <figcaption className="legend">
        <span className="scale-strip">
          {number(least)}
          <i style={{ background: diverging ? "linear-gradient(90deg in oklab, var(--c-2), var(--heat-0), var(--c-1))" : "linear-gradient(90deg in oklab, var(--heat-0), var(--heat-1))" }} />
          {number(most)}
        </span>
        <span aria-live="polite">
          {at ? (
            <>
              {told}
              <b>{number(values[at[0]]?.[at[1]])}</b>
              {beside.map((one) => `, ${one.label} ${number(one.values[at[1]])}`)}
            </>
          ) : (
            "point at a cell, or move with the arrow keys"
          )}
        </span>
      </figcaption>
      <div className="scroll-x">
        <svg ref={grid} className="heat" width={width} height={height} role="group" aria-labelledby={`${id}-t`}>
          <title id={`${id}-t`}>{title}</title>
          {columns.map((column, index) => (
            <text key={column} textAnchor={roomy ? "middle" : "start"}
              transform={`translate(${LEFT + cell * (index + 0.5) + (roomy ? 0 : 3)} ${head - 10}) rotate(${roomy ? 0 : -45})`}>
              {column}
            </text>
          ))}
          {rows.map((row, r) => (
            <g key={row}>
              <text x={LEFT - 10} y={head + TALL * (r + 0.5)} dy="0.32em" textAnchor="end">
                {row}
              </text>
              {columns.map((column, c) => (
                <rect key={column} x={LEFT + cell * c} y={head + TALL * r} width={cell} height={TALL} rx="3" role="img"
                  data-at={`${r}-${c}`} data-on={at?.[0] === r && at[1] === c}
                  style={{ fill: fill(values[r]?.[c] ?? null) }} tabIndex={focusable[0] === r && focusable[1] === c ? 0 : -1}
                  aria-label={`${row} in ${column}: ${number(values[r]?.[c])}`} onPointerEnter={() => setAt([r, c])}
                  onFocus={() => setAt([r, c])} onKeyDown={(event) => move(event, r, c)} />
              ))}
              {roomy && columns.map((column, c) => {
                const value = values[r]?.[c] ?? null;
                return (
                  <text key={column} className="value" aria-hidden="true" style={value === null ? undefined : { fill: css(inkOn(ground(value))) }}
                    x={LEFT + cell * (c + 0.5)} y={head + TALL * (r + 0.5)} dy="0.35em" textAnchor="middle">
                    {value === null ? "" : value.toFixed(2).replace("-", "−")}
                  </text>
                );
              })}
            </g>
          ))}
        </svg>
      </div>
      <ChartTable caption={title} 
        heads={["Layer", ...rows, ...beside.map((one) => one.label)]}
        rows={columns.map((column, c) => [column, ...rows.map((_, r) => number(values[r]?.[c])), ...beside.map((one) => number(one.values[c]))])}
      />
    </figure>
  );
}
