/** Lines of a chart as paths. */
import { area, curveLinear, curveStepAfter, line as lineOf } from "d3-shape";
import { type Extent, extent, type Scale, shows } from "../lib/scale";
import { type Points, thinned } from "../lib/thin";

export interface Line extends Points {
  key: string;
  label: string;
  color: string;
  dash?: string;
  /** The name in the table, if several lines have one label. */
  name?: string;
  /** One of several repetitions, drawn faintly beneath their median. */
  thin?: boolean;
  /** The number of repetitions that the line is the median of. */
  seeds?: number;
  step?: boolean;
  /** False for points that are not joined. */
  joined?: boolean;
}

/** The line with as many points as the pixels between both ends of the domain can show, and no value that the y axis has no room for. */
export function reduced(line: Line, x: Scale, [low, high]: Extent, log: boolean): Line {
  const column = (value: number) => (value < low ? -1 : value > high ? Infinity : Math.floor(x(value)));
  const kept = thinned(line, column);
  const pick = (values: Points["y"]) => kept.map((index) => (shows(values[index], log) ? (values[index] as number) : null));
  return {
    ...line,
    // A place outside stays outside: the line leaves the picture where it does.
    x: kept.map((index) => line.x[index] ?? 0),
    y: pick(line.y),
    low: line.low && pick(line.low),
    high: line.high && pick(line.high),
  };
}

/** Shares of the way from one point to the next. */
const BETWEEN = [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1];

const isThere = (value: number | null | undefined): value is number => value !== null && value !== undefined;

/** A line with gaps where values are missing; a step stays until the next value. */
export function pathOf({ x: places, y: values, step, joined }: Line, x: Scale, y: Scale): string | undefined {
  if (joined === false) return undefined;
  const path = lineOf<number | null>(
    (_, index) => x(places[index] ?? 0),
    (value) => y(value ?? 0),
  );
  return path.defined((value, index) => isThere(value) && Number.isFinite(x(places[index] ?? 0))).curve(step ? curveStepAfter : curveLinear).digits(1)(values) ?? undefined;
}

/** Places in pixels along a line: its points, and some between two that are joined. */
export function pixelsOf({ x: places, y: values, joined }: Line, x: Scale, y: Scale): [number, number][] {
  const at = (index: number): [number, number] | null => {
    const value = values[index];
    return isThere(value) ? [x(places[index] ?? 0), y(value)] : null;
  };
  return [...values.keys()].flatMap((index) => {
    const [before, here] = [at(index - 1), at(index)];
    if (!here) return [];
    if (!before || joined === false) return [here];
    return BETWEEN.map((share): [number, number] => [before[0] + share * (here[0] - before[0]), before[1] + share * (here[1] - before[1])]);
  });
}

export function bandOf({ x: places, low, high }: Line, x: Scale, y: Scale): string | undefined {
  if (!low || !high) return undefined;
  const path = area<number | null>(
    (_, index) => x(places[index] ?? 0),
    (_, index) => y(low[index] ?? 0),
    (value) => y(value ?? 0),
  );
  return path.defined((value, index) => isThere(value) && isThere(low[index])).digits(1)(high) ?? undefined;
}

/** Indexes of points without a neighbour, and of those that are not joined: a path does not show them. */
export function lone({ y, joined }: Line): number[] {
  if (joined === false) return [...y.keys()].filter((index) => isThere(y[index]));
  return [...y.keys()].filter((index) => isThere(y[index]) && !isThere(y[index - 1]) && !isThere(y[index + 1]));
}

/** Return whether no two points of a line are joined. */
export function onlyPoints(line: Line): boolean {
  return lone(line).length === line.y.filter(isThere).length;
}

/** The index of the point at a place, or of the nearest one; -1 before the line's first and after its last point. */
export function indexAt(line: Line, place: number): number {
  const found = extent(line.x);
  return found && place >= found[0] && place <= found[1] ? nearest(line.x, place) : -1;
}

/** The index of the number that is nearest to a value. */
export function nearest(numbers: readonly number[], value: number): number {
  let best = 0;
  for (let index = 1; index < numbers.length; index += 1) {
    if (Math.abs((numbers[index] ?? 0) - value) < Math.abs((numbers[best] ?? 0) - value)) best = index;
  }
  return best;
}
