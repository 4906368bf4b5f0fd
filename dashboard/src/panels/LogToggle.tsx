/** Switches an axis between linear and logarithmic, if that shows more: where positive values are far enough apart. */
import { useMemo } from "react";
import type { Axis } from "../api/types";
import { extent, positive } from "../lib/scale";

interface Props {
  axis: Axis;
  log: boolean;
  values: () => Iterable<number | null>;
  /** The greatest value is at least so many times the least. */
  apart?: number;
  onChange: (log: boolean) => void;
}

export function LogToggle({ axis, log, values, apart = 2, onChange }: Props) {
  const possible = useMemo(() => {
    const found = extent(positive(values()));
    return found !== null && (axis.log || found[1] / found[0] >= apart);
  }, [values, axis.log, apart]);
  if (!possible) return null;
  return (
    <label className="check small">
      <input type="checkbox" checked={log} onChange={(event) => onChange(event.target.checked)} />
      log {axis.name}
    </label>
  );
}
