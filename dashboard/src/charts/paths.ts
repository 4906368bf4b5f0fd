/** Path data of lines with gaps. */

type Scale = (value: number) => number;
type Values = (number | null)[];

function stretches(xs: number[], values: Values): [number, number][][] {
  const found: [number, number][][] = [];
  let open: [number, number][] | null = null;
  xs.forEach((x, index) => {
    const value = values[index];
    if (value === null || value === undefined) {
      open = null;
      return;
    }
    if (!open) {
      open = [];
      found.push(open);
    }
    open.push([x, value]);
  });
  return found;
}

const point = (x: number, y: number) => `${x.toFixed(1)} ${y.toFixed(1)}`;

export function linePath(xs: number[], values: Values, x: Scale, y: Scale): string {
  return stretches(xs, values)
    .map((part) => `M${part.map(([a, b]) => point(x(a), y(b))).join("L")}`)
    .join("");
}

/** A line that stays until the next value. */
export function stepPath(xs: number[], values: Values, x: Scale, y: Scale): string {
  return stretches(xs, values)
    .map((part) => part.map(([a, b], n) => (n === 0 ? `M${point(x(a), y(b))}` : `H${x(a).toFixed(1)}V${y(b).toFixed(1)}`)).join(""))
    .join("");
}

export function bandPath(xs: number[], low: Values, high: Values, x: Scale, y: Scale): string {
  const both = high.map((value, index) => (low[index] === null ? null : value));
  return stretches(xs, both)
    .map((part) => {
      const back = [...part].reverse().map(([a]) => point(x(a), y(low[xs.indexOf(a)] ?? 0)));
      return `M${part.map(([a, b]) => point(x(a), y(b))).join("L")}L${back.join("L")}Z`;
    })
    .join("");
}
