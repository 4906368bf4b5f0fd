/** Places where a unit of the run ends, such as a generation, found in the events. */
import type { LightEvent } from "./eventIndex";

export interface Closing {
  place: number;
  unit: number;
  /** The champion changed there. */
  changed: boolean;
}

export function closings(rows: LightEvent[]): Closing[] {
  const found: Closing[] = [];
  rows.forEach((row, index) => {
    if (row.unit === null) return;
    // What closes a unit stands in one append; the last of it is the place.
    let end = index;
    while (rows[end + 1]?.inside) end += 1;
    const changed = rows.slice(index, end + 1).some((one) => one.type === "champion_changed");
    found.push({ place: end + 1, unit: row.unit, changed });
  });
  return found;
}

/** The place itself, or the nearest one in the direction of travel where it lies inside of an append. */
export function settle(rows: LightEvent[], place: number, forward: boolean): number {
  let found = place;
  while (rows[found]?.inside) found += forward ? 1 : -1;
  return found;
}
