/** Repetitions of a line with several seeds, summed up as `runs/panels/side_by_side.py` does: their median, and a band over all. */
import type { Points } from "../lib/thin";

/**
 * The median over seeds at every place of any of them, with a band from the least to the greatest; null for one seed, or where places do
 * not ascend. Between two of its points a seed lies on the straight line; at a gap and outside of its ends it has no value.
 */
export function summary(seeds: readonly Points[]): Points | null {
  if (seeds.length < 2 || seeds.some(({ x }) => x.some((place, index) => index > 0 && place <= (x[index - 1] ?? 0)))) return null;
  const x = [...new Set(seeds.flatMap((one) => one.x))].sort((a, b) => a - b);
  const walks = seeds.map((one) => walk(one, x));
  const found = x.map((_, index) => walks.flatMap((values) => values[index] ?? []).sort((a, b) => a - b));
  return { x, y: found.map(median), low: found.map((values) => values[0] ?? null), high: found.map((values) => values.at(-1) ?? null) };
}

/** A line's values at ascending places; null where it has none. */
function walk({ x, y }: Points, places: readonly number[]): (number | null)[] {
  let index = 0;
  return places.map((place) => {
    while (index < x.length && (x[index] ?? 0) < place) index += 1;
    const [end, high] = [x[index], y[index] ?? null];
    if (end === undefined) return null;
    if (end === place) return high;
    const [begin, low] = [x[index - 1], y[index - 1] ?? null];
    return begin === undefined || low === null || high === null ? null : low + ((high - low) * (place - begin)) / (end - begin);
  });
}

function median(values: readonly number[]): number | null {
  const [low, high] = [values[(values.length - 1) >> 1], values[values.length >> 1]];
  return low === undefined || high === undefined ? null : (low + high) / 2;
}
