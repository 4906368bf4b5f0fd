/** Lines of many points, as a screen can show them. */

export interface Points {
  x: readonly number[];
  y: readonly (number | null)[];
  low?: readonly (number | null)[] | null;
  high?: readonly (number | null)[] | null;
}

/**
 * Indexes of the points that are drawn. Of consecutive points in one column of pixels these are the first, the last, the lowest,
 * the highest, the ends of the band and the first gap, so every extreme and every gap is still seen. `column` gives a point's column.
 */
export function thinned(points: Points, column: (x: number) => number): number[] {
  const { x } = points;
  const found: number[] = [];
  let begin = 0;
  while (begin < x.length) {
    const here = column(x[begin] ?? 0);
    let end = begin + 1;
    while (end < x.length && column(x[end] ?? 0) === here) end += 1;
    if (end - begin <= 4) for (let index = begin; index < end; index += 1) found.push(index);
    else found.push(...telling(points, begin, end));
    begin = end;
  }
  return found;
}

function telling({ y, low, high }: Points, begin: number, end: number): number[] {
  const picked = new Set([begin, end - 1]);
  const keep = (values: Points["y"] | null | undefined, sign: number) => {
    let best: number | null = null;
    for (let index = begin; values && index < end; index += 1) {
      const value = values[index];
      if (value === null || value === undefined) continue;
      if (best === null || sign * value > sign * (values[best] ?? 0)) best = index;
    }
    if (best !== null) picked.add(best);
  };
  keep(y, 1);
  keep(y, -1);
  keep(low, -1);
  keep(high, 1);
  for (let index = begin; index < end; index += 1) {
    if (y[index] === null) {
      picked.add(index);
      break;
    }
  }
  return [...picked].sort((a, b) => a - b);
}
