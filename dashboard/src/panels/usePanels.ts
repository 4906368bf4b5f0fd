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

export function usePanels(run: string, at: number | null): Overview {
  const path = `runs/${encodeURIComponent(run)}/panels`;
  const live = useResource<Panels>(path);
  // While the slider is dragged, only the place where it rests is asked for.
  const settled = useDebounced(at, 150);
  const past = useResource<Panels>(at === null ? null : withQuery(path, { at: settled ?? at }));
  // A place inside of one append is left for the next one: the page of the run says so.
  const error = past.error instanceof ApiError && [409, 422].includes(past.error.status) ? null : past.error;
  const shown = at === null ? live : { ...past, error, data: past.data ?? live.data };
  return { shown, newest: at === null ? undefined : live.data };
}
