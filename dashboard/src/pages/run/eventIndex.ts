/** A run's events without their data: enough for a list and for the time slider, and kept while one looks. */
import { explain, request } from "../../api/client";
import type { Events, Event } from "../../api/types";
import { runPath } from "./context";

export interface LightEvent {
  place: number;
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

/** The events of a run, as one index for all who look at it. */
export function eventIndex(run: string): EventIndex {
  const known = kept.get(run) ?? new EventIndex(run);
  kept.delete(run);
  kept.set(run, known);
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

  constructor(private readonly run: string) {}

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
    const { rows } = this.view;
    if (event.place !== rows.length + 1) return;
    this.show({ ...this.view, rows: [...rows, light(event)], total: event.place });
  }

  private async fill(): Promise<void> {
    this.show({ ...this.view, loading: true, error: null });
    try {
      while (this.view.rows.length < this.wanted) {
        const after = this.view.rows.length;
        const answer = await request<Events>(runPath(this.run, "/events", { after, limit: PAGE, data: "false" }));
        const page = answer?.data;
        if (!page || page.events.length === 0) break;
        const fresh = page.events.filter((event) => event.place > this.view.rows.length).map(light);
        this.show({ ...this.view, rows: [...this.view.rows, ...fresh], total: page.total });
      }
      this.show({ ...this.view, loading: false });
    } catch (error) {
      this.show({ ...this.view, loading: false, error: explain(error) });
    }
  }

  private show(view: IndexView): void {
    this.view = view;
    for (const listener of this.listeners) listener();
  }
}

function light(event: Event): LightEvent {
  const { place, type, inside, actor, recorded_at, gist, unit } = event;
  return { place, type, inside, actor, recorded_at, gist, unit };
}
