/** Where to go when a place lies inside of one append: the server says which places are near. */
import type { Problem } from "../../api/types";

let before = 0;

/** Remembers where one comes from. */
export function leave(place: number): void {
  before = place;
}

/** The place to take instead, or null where the problem is another one. */
export function snap(problem: Problem, at: number): number | null {
  if (problem.status !== 409 && problem.status !== 422) return null;
  const found = /take (\d+) or (\d+)/.exec(problem.detail ?? "");
  if (!found) return null;
  const start = Number(found[1]);
  const end = Number(found[2]);
  return at > before ? end : start;
}
