/** Head and panels of a run: as they are now, and as they were at a place. Events make the page ask again. */
import type { Panels } from "../api/types";
import { ApiError, withQuery } from "../api/client";
import { type Resource, useDebounced, useResource } from "../lib/hooks";

export interface Overview {
  /** What is shown: now, or the past. */
  shown: Resource<Panels>;
  /** Now; the same as what is shown unless that is the past. */
  newest: Panels | undefined;
}

export function usePanels(run: string, at: number | null, upto: number | null): Overview {
  const path = `runs/${encodeURIComponent(run)}/panels`;
  const live = useResource<Panels>(path);
  // While the slider is dragged, only the place where it rests is asked for.
  const wanted = at === null && upto === null ? null : withQuery(path, at === null ? { upto } : { at });
  const settled = useDebounced(wanted, 150);
  const past = useResource<Panels>(wanted === null ? null : (settled ?? wanted));
  // A place inside of one append is left for the next one: the page of the run says so.
  const error = past.error instanceof ApiError && [409, 422].includes(past.error.status) ? null : past.error;
  const shown = wanted === null ? live : { ...past, error, data: past.data ?? live.data };
  return { shown, newest: wanted === null ? undefined : live.data };
}
