/** Scales of the charts: d3-scale's, with the extents that they are made from and the labels of their ticks. */
import { type ScaleContinuousNumeric, scaleLinear, scaleLog } from "d3-scale";
import { bytes } from "./format";

export type Extent = [number, number];
export type Scale = ScaleContinuousNumeric<number, number>;

/** Least and greatest of the numbers; null if there is none. */
export function extent(values: Iterable<number | null | undefined>): Extent | null {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? null : [low, high];
}

/** Room around an extent, so that nothing touches the edge. */
export function padded([low, high]: Extent, share = 0.08): Extent {
  const room = (high - low) * share || Math.abs(high) * 0.02 || 0.5;
  return [low - room, high + room];
}

/** The same for a logarithmic axis; both ends are greater than 0. */
function paddedLog([low, high]: Extent, share: number): Extent {
  const room = (high / low) ** share;
  return room > 1 ? [low / room, high * room] : [low / 1.5, high * 1.5];
}

export function linear(domain: Extent, range: Extent): Scale {
  return scaleLinear(domain, range);
}

/** Return whether an axis can show the value: a logarithmic one has no room for 0 and less. */
export function shows(value: number | null | undefined, log: boolean): value is number {
  return value !== null && value !== undefined && (!log || value > 0);
}

/** A scale with room around the values; null if there is no value that it can show. */
export function scaleOver(values: Iterable<number | null | undefined>, range: Extent, log: boolean, share = 0.08): Scale | null {
  const found = extent(log ? positive(values) : values);
  if (!found) return null;
  if (log) return scaleLog(paddedLog(found, share), range);
  const [low, high] = padded(found, share);
  return scaleLinear([found[0] >= 0 ? Math.max(0, low) : low, high], range);  // what is never below 0 has no room there
}

/** A scale between two values, without room around them. */
export function scaleBetween(domain: Extent, range: Extent, log: boolean): Scale {
  return log ? scaleLog(domain, range) : scaleLinear(domain, range);
}

export function* positive(values: Iterable<number | null | undefined>): Iterable<number> {
  for (const value of values) if (shows(value, true)) yield value;
}

/** As many decimals as tell the ticks apart; thousands, millions and so on by their letters where numbers are large. */
export function tickFormat(scale: Scale, wished: number): (value: number) => string {
  const [low = 0, high = 0] = scale.domain();
  const plain = "base" in scale ? ",g" : undefined;
  const tell = scale.tickFormat(wished, Math.max(Math.abs(low), Math.abs(high)) >= 1e5 ? "s" : plain);
  return (value) => (value === 0 ? tell(0).replace(/[a-zA-Z]$/, "") : tell(value));
}

/** Ticks of an axis of bytes: multiples of the largest power of 1024, or powers of 2 on a logarithmic axis. */
function ofBytes(scale: Scale, wished: number): number[] {
  const [low = 0, high = 0] = scale.domain();
  if ("base" in scale) {
    const [first, last] = [Math.ceil(Math.log2(low)), Math.floor(Math.log2(high))];
    const step = Math.max(1, Math.ceil((last - first + 1) / wished));
    return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, index) => 2 ** (first + index * step));
  }
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(Math.abs(low), Math.abs(high), 1)) / 10));
  return scaleLinear([low / unit, high / unit], [0, 1]).ticks(wished).map((at) => at * unit);
}

/** Ticks that have a label: a logarithmic scale has more lines than labels. A `whole` axis has whole numbers only. */
export function labelled(scale: Scale, wished: number, whole = false, form?: (value: number) => string): { at: number; label: string }[] {
  if (form === bytes) return ofBytes(scale, wished).map((at) => ({ at, label: bytes(at).replace(/\.0+ /, " ") }));
  const plain = tickFormat(scale, wished);
  const tell = form ? (value: number) => plain(value) && form(value) : plain;
  const ticks = scale.ticks(wished).map((at) => ({ at, label: tell(at) })).filter((tick) => tick.label !== "");
  return whole ? ticks.filter((tick) => Number.isInteger(tick.at)).map(({ at, label }) => ({ at, label: label.replace(/\.0+$/, "") })) : ticks;
}
