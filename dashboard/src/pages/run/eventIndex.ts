/** A run's events without their data: enough for a list and for the time slider, and kept while one looks. */
import { explain, request } from "../../api/client";
import type { Event, Events, Moment, Moments } from "../../api/types";
import { runPath } from "./context";

export interface LightEvent {
  /** Its number among the events that the slider moves over, from 1. */
  place: number;
  /** The run whose event it is, and its place in that run's own history. */
  run: string;
  own: number;
  /** Its position in the whole log. */
  position: number;
  type: string;
  /** It stands inside of an append: no place where the run ever stood lies before it. */
  inside: boolean;
  actor: string;
  recorded_at: string;
  gist: string;
  /** The unit of the run that it ends. */
  unit: number | null;
}

export interface IndexView {
  rows: LightEvent[];
  total: number;
  loading: boolean;
  error: string | null;
}

const PAGE = 1000;
const KEPT = 4;
const kept = new Map<string, EventIndex>();

/** The events of a run, as one index for all who look at it; with `all`, those of the runs that it delegates too. */
export function eventIndex(run: string, all = false): EventIndex {
  const key = all ? `${run} and its children` : run;
  const known = kept.get(key) ?? new EventIndex(run, all);
  kept.delete(key);
  kept.set(key, known);
  for (const name of kept.keys()) {
    if (kept.size <= KEPT) break;
    kept.delete(name);
  }
  return known;
}

export class EventIndex {
  private view: IndexView = { rows: [], total: 0, loading: false, error: null };
  private wanted = 0;
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly run: string,
    private readonly all: boolean,
  ) {}

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly snapshot = (): IndexView => this.view;

  /** Reads until the event of this place is there. */
  readonly want = (place: number): void => {
    this.wanted = Math.max(this.wanted, place);
    if (!this.view.loading && this.view.rows.length < this.wanted) void this.fill();
  };

  /** Takes in an event that the live connection told of. */
  take(event: Event): void {
    const { rows, total } = this.view;
    if (this.all) {
      // A child's first event may not be told of: what is missing is asked for, in the log's order.
      if (rows.length > 0 && event.position > (rows.at(-1)?.position ?? 0)) this.want(Math.max(total, rows.length) + 1);
      return;
    }
    if (event.place !== rows.length + 1) return;
    this.show({ ...this.view, rows: [...rows, light(event, event.place)], total: event.place });
  }

  private async fill(): Promise<void> {
    this.show({ ...this.view, loading: true, error: null });
    try {
      // Of several runs all events are read: only all of them say how many there are before a place.
      while (this.view.rows.length < Math.max(this.wanted, this.all ? this.view.total : 0)) {
        const { events, total } = await this.page();
        if (events.length === 0) break;
        this.show({ ...this.view, rows: [...this.view.rows, ...events], total });
      }
      this.show({ ...this.view, loading: false });
    } catch (error) {
      this.show({ ...this.view, loading: false, error: explain(error) });
    }
  }

  /** The next events that are not there yet. */
  private async page(): Promise<{ events: LightEvent[]; total: number }> {
    const { rows } = this.view;
    if (this.all) {
      const after = rows.at(-1)?.position ?? 0;
      const answer = await request<Moments>(runPath(this.run, "/moments", { after, limit: PAGE }));
      const { moments = [], total = 0 } = answer?.data ?? {};
      const seen = this.view.rows.length;
      const newer = moments.filter((moment) => moment.position > (this.view.rows.at(-1)?.position ?? 0));
      return { events: newer.map((moment, index) => ({ ...light(moment, seen + index + 1), gist: withParts(this.run, moment.gist) })), total };
    }
    const answer = await request<Events>(runPath(this.run, "/events", { after: rows.length, limit: PAGE, data: "false" }));
    const { events = [], total = 0 } = answer?.data ?? {};
    return { events: events.filter((event) => event.place > this.view.rows.length).map((event) => light(event, event.place)), total };
  }

  private show(view: IndexView): void {
    this.view = view;
    for (const listener of this.listeners) listener();
  }
}

/** What a run is in the run that it is a task of: the part of its id behind the other's. */
export function partOf(parent: string, run: string): string {
  return run.startsWith(`${parent}.`) ? run.slice(parent.length + 1) : run;
}

/** A text in which the parts of a run are called as `partOf` calls them. */
function withParts(parent: string, text: string): string {
  const id = parent.replace(/[.+]/g, "\\$&");
  return text.replace(new RegExp(`(?<![\\w.+-])${id}\\.(?=\\d+-)`, "g"), "");
}

function light(event: Event | Moment, place: number): LightEvent {
  const { run, place: own, position, type, inside, actor, recorded_at, gist, unit } = event;
  return { place, run, own, position, type, inside, actor, recorded_at, gist, unit };
}
