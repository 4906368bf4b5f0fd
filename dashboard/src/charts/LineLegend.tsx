/** The legend of lines: the place of the cursor, and what each line says there, or at its end. Of repetitions their median has an entry. */
import type { Axis } from "../api/types";
import { number } from "../lib/format";
import { extent } from "../lib/scale";
import { named } from "../panels/words";
import { indexAt, type Line, onlyPoints } from "./lines";

interface Props {
  axis: Axis;
  /** The place of the cursor; null where it is not set: then the legend has the last value of each line. */
  at: number | null;
  lines: Line[];
  format: (value: number | null | undefined) => string;
  onReset: (() => void) | null;
}

export function LineLegend({ axis, at, lines, format, onReset }: Props) {
  const groups = new Map<string, Line[]>();
  for (const line of lines) if (!line.thin) groups.set(line.label, [...(groups.get(line.label) ?? []), line]);
  return (
    <figcaption className="legend">
      <span className="legend-at">
        {at === null ? "last values" : <>{named(axis)} <b>{placeOf(at, axis)}</b></>}
      </span>
      {[...groups].map(([label, [first, ...rest]]) =>
        first ? (
          <span key={label}>
            <svg width="16" height="8" aria-hidden="true">
              {[first, ...rest].every(onlyPoints) ? (
                <circle className="lone" cx="8" cy="4" r="3" stroke={first.color} />
              ) : (
                <path d="M0 4h16" stroke={first.color} strokeWidth="2.5" strokeDasharray={first.dash} />
              )}
            </svg>
            {label} {first.seeds ? <span className="quiet">(median of {first.seeds} seeds)</span> : rest.length > 0 && <span className="quiet">({rest.length + 1} lines)</span>}
            <b>{told([first, ...rest], at, format)}</b>
          </span>
        ) : null,
      )}
      {onReset && (
        <button type="button" className="button small" onClick={onReset}>
          Reset zoom
        </button>
      )}
    </figcaption>
  );
}

/** A place of the axis: by its name, if it has one. */
export function placeOf(at: number, axis: Axis): string {
  return axis.names[at] ?? number(at);
}

/** The value at a place, or the least and the greatest of several lines; with the band's ends, if a line has a band. */
function told(lines: Line[], at: number | null, format: Props["format"]): string {
  const points = lines.map((line) => ({ line, index: at === null ? line.y.findLastIndex((value) => value !== null) : indexAt(line, at) }));
  const found = extent(points.map(({ line, index }) => line.y[index]));
  if (!found) return format(null);
  if (found[0] < found[1]) return `${format(found[0])} … ${format(found[1])}`;
  const { line, index } = points[0] ?? {};
  const [low, high] = [line?.low?.[index ?? 0], line?.high?.[index ?? 0]];
  const band = low === null || low === undefined ? "" : ` (${format(low)} … ${format(high)})`;
  return format(found[0]) + (lines.length === 1 ? band : "");
}
