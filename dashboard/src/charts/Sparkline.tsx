/** A curve without axes, with the name of what it is. */
import { memo } from "react";
import { number } from "../lib/format";

const WIDE = 104;
const TALL = 24;

export const Sparkline = memo(function Sparkline({ curve, of }: { curve: (number | null)[]; of: string }) {
  const points = curve.flatMap((value, index) => (value === null ? [] : [[index, value] as const]));
  const last = points.at(-1);
  if (!last || points.length === 1) return <span className="quiet">–</span>;
  const values = points.map(([, value]) => value);
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const x = (index: number) => 3 + (index / Math.max(1, curve.length - 1)) * (WIDE - 6);
  const y = (value: number) => TALL - 4 - ((value - low) / range) * (TALL - 8);
  return (
    <svg className="spark" viewBox={`0 0 ${WIDE} ${TALL}`} width={WIDE} height={TALL} role="img" aria-label={`${of}, ${number(values[0])} to ${number(last[1])}`}>
      <title>{`${of}: ${number(values[0])} … ${number(last[1])}`}</title>
      <polyline points={points.map(([index, value]) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ")} />
      <circle cx={x(last[0])} cy={y(last[1])} r="2.2" />
    </svg>
  );
});
