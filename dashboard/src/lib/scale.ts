/** Scales of the charts: d3-scale's, with the extents that they are made from and the labels of their ticks. */
import { type ScaleLinear, scaleLinear } from "d3-scale";

export type Extent = [number, number];
export type Scale = ScaleLinear<number, number>;

/** Least and greatest of the numbers; null if there is none. */
export function extent(values: Iterable<number | null | undefined>): Extent | null {
  const numbers = [...values].filter((value): value is number => Number.isFinite(value));
  return numbers.length === 0 ? null : [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
}

/** Room around an extent, so that nothing touches the edge. */
export function padded([low, high]: Extent, share = 0.08): Extent {
  const room = (high - low) * share || Math.abs(high) * 0.02 || 0.5;
  return [low - room, high + room];
}

export function linear(domain: Extent, range: Extent): Scale {
  return scaleLinear(domain, range);
}

/** As many decimals as tell the ticks apart; thousands, millions and so on by their letters where numbers are large. */
export function tickFormat(scale: Scale, wished: number): (value: number) => string {
  const [low = 0, high = 0] = scale.domain();
  return scale.tickFormat(wished, Math.max(Math.abs(low), Math.abs(high)) >= 1e5 ? "s" : undefined);
}
