/** Linear scales and round ticks. */

export type Extent = [number, number];

export function extent(values: Iterable<number | null | undefined>): Extent | null {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** Room around an extent, so that nothing touches the edge. */
export function padded([low, high]: Extent, share = 0.08): Extent {
  const room = (high - low) * share || Math.abs(high) * 0.02 || 0.5;
  return [low - room, high + room];
}

export function linear([d0, d1]: Extent, [r0, r1]: Extent): (value: number) => number {
  const span = d1 - d0 || 1;
  return (value) => r0 + ((value - d0) / span) * (r1 - r0);
}

/** Round numbers inside an extent, about as many as wished. */
export function ticks([low, high]: Extent, wished = 5): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, wished);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const found: number[] = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n += 1) found.push(n * step);
  return found;
}

/** Whole numbers inside an extent, about as many as wished. */
export function wholeTicks([low, high]: Extent, wished: number): number[] {
  const rough = (high - low) / Math.max(1, wished);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = Math.max(1, ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power);
  const found: number[] = [];
  for (let n = Math.ceil(low / step) * step; n <= high; n += step) found.push(n);
  return found;
}

/** As many decimals as tell the ticks apart. */
export function tickFormat(values: number[]): (value: number) => string {
  const step = values.length > 1 ? Math.abs((values[1] ?? 0) - (values[0] ?? 0)) : 1;
  const digits = Math.min(8, Math.max(0, -Math.floor(Math.log10(step || 1) + 1e-9)));
  return (value) => (Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toFixed(digits)).replace("-", "−");
}
