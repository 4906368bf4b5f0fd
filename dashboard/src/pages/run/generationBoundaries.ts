/** Places where a generation ends, found in the events. */
import type { LightEvent } from "./eventIndex";

export interface Closing {
  place: number;
  generation: number;
  /** The champion changed there. */
  changed: boolean;
}

/** What closes a generation stands in one append; the last of it is the place. */
const INSIDE = new Set(["generation_completed", "champion_changed", "converged", "reseeded"]);

export function closings(rows: LightEvent[]): Closing[] {
  const found: Closing[] = [];
  rows.forEach((row, index) => {
    if (row.type !== "generation_completed") return;
    let end = index;
    while (end + 1 < rows.length && INSIDE.has(rows[end + 1]?.type ?? "")) end += 1;
    const changed = rows.slice(index, end + 1).some((one) => one.type === "champion_changed");
    found.push({ place: end + 1, generation: row.generation ?? found.length, changed });
  });
  return found;
}

/** The place itself, or the nearest one in the direction of travel where it lies inside of an append. */
export function settle(rows: LightEvent[], place: number, forward: boolean): number {
  let found = place;
  while (INSIDE.has(rows[found]?.type ?? "")) found += forward ? 1 : -1;
  return found;
}
