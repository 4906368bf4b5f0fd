/** The moment that a page shows: now, a place of the run's own history, or a position in the whole log. */
import { type Route, withParts } from "../../lib/router";
import type { LightEvent } from "./eventIndex";

/** Both null: now. `upto` alone: the run, and the runs that it delegates, at this position of the log. */
export interface Moment {
  at: number | null;
  upto: number | null;
}

const whole = (text: string | null): number | null => (Number.isInteger(Number(text)) && Number(text) > 0 ? Number(text) : null);

/** What the address says. A place goes before a position: it is the finer one. */
export function asked(route: Route): Moment {
  return { at: whole(route.query.get("at")), upto: whole(route.query.get("upto")) };
}

/** As a query of the API, which takes one of both. */
export function queried({ at, upto }: Moment): Record<string, number | null> {
  return at === null ? { at: null, upto } : { at, upto: null };
}

/** The place of the slider, counted in its events; null for now. */
export function placeIn(rows: LightEvent[], { at, upto }: Moment, run: string): number | null {
  if (at === null && upto === null) return null;
  const found = at === null ? rows.findLastIndex((row) => row.position <= (upto ?? 0)) : rows.findIndex((row) => row.run === run && row.own === at);
  return Math.max(1, found + 1);
}

/** The address of the page at a place of the slider; null: now. Pages of the same pipeline share the position. */
export function addressOf(route: Route, place: number | null, rows: LightEvent[], run: { delegates: boolean; part_of: unknown }): string {
  const position = place === null || !(run.delegates || run.part_of !== null) ? null : (rows[place - 1]?.position ?? null);
  return withParts(route, { at: run.delegates ? null : place, upto: position });
}
