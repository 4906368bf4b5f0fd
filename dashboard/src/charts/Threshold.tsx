/** A dotted line at a limit, whose words stand where the fewest drawn points are. */

interface Props {
  /** The line runs across at this height, or down from the top at this place. */
  level: boolean;
  at: number;
  /** Both ends of the line, in pixels. */
  ends: [number, number];
  says: string;
  /** Pixels of what is drawn. */
  points: readonly [number, number][];
}

/** Pixels of a letter's width, and of a line of words. */
const LETTER = 6.4;
const WORDS = 15;

export function Threshold({ level, at, ends: [start, end], says, points }: Props) {
  if (!level) {
    return (
      <g className="threshold">
        <line x1={at} x2={at} y1={start} y2={end} />
        <text x={at + 4} y={start + 10}>
          {says}
        </text>
      </g>
    );
  }
  const width = Math.min(end - start, LETTER * says.length + 8);
  const spots = [start, end - width, (start + end - width) / 2].flatMap((left) => [at - WORDS, at].map((top) => ({ left, top })));
  const crowd = ({ left, top }: { left: number; top: number }) => points.filter(([x, y]) => x >= left && x <= left + width && y >= top && y <= top + WORDS).length;
  const best = spots.reduce((one, other) => (crowd(other) < crowd(one) ? other : one));
  return (
    <g className="threshold">
      <line x1={start} x2={end} y1={at} y2={at} />
      <text x={best.left + 4} y={best.top + (best.top < at ? WORDS - 5 : WORDS - 3)}>
        {says}
      </text>
    </g>
  );
}
