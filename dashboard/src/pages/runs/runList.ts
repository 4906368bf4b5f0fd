/** The list of runs, page by page as it is needed, kept fresh without moving what is in sight. */
import { explain, request, withQuery } from "../../api/client";
import type { Row, Rows } from "../../api/types";

export interface Filter {
  status: string;
  owner: string;
  q: string;
  label: string;
}

export interface RunListView {
  rows: Row[];
  total: number;
  ready: boolean;
  error: string | null;
}

const PAGE = 200;

export class RunList {
  private view: RunListView = { rows: [], total: 0, ready: false, error: null };
  private pages: { cursor: string | null; runs: Set<string>; etag: string | null }[] = [];
  private next: string | null = null;
  private wanted = 0;
  private busy = false;
  private over = false;
  private readonly listeners = new Set<() => void>();
  private readonly dirty = new Set<number>();

  constructor(private readonly filter: Filter) {}

  readonly subscribe = (listener: () => void): (() => void) => {
    this.over = false;
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
      this.over = this.listeners.size === 0;
    };
  };

  readonly snapshot = (): RunListView => this.view;

  /** Loads until the row of this index is there. */
  readonly want = (index: number): void => {
    this.wanted = Math.max(this.wanted, index);
    if (!this.busy) void this.fill();
  };

  /** Something happened to a run: the page that it stands on is asked for again by `freshen`. */
  mark(run: string | undefined): void {
    const page = this.pages.findIndex((known) => run !== undefined && known.runs.has(run));
    this.dirty.add(Math.max(0, page));
  }

  markAll(): void {
    for (const index of this.pages.keys()) this.dirty.add(index);
  }

  async freshen(): Promise<void> {
    const todo = [...this.dirty];
    this.dirty.clear();
    for (const index of todo) {
      const page = this.pages[index];
      if (!page) continue;
      try {
        const answer = await request<Rows>(this.path(page.cursor), { etag: page.etag });
        if (answer) {
          page.etag = answer.etag;
          this.merge(index, answer.data);
        }
      } catch {
        this.dirty.add(index);
      }
    }
  }

  private async fill(): Promise<void> {
    this.busy = true;
    try {
      while (!this.over && (!this.view.ready || (this.next !== null && this.view.rows.length <= this.wanted))) {
        const cursor = this.view.ready ? this.next : null;
        const answer = await request<Rows>(this.path(cursor));
        if (!answer) break;
        const { runs, total, next } = answer.data;
        const known = new Set(this.view.rows.map((row) => row.run));
        this.pages.push({ cursor, runs: new Set(runs.map((row) => row.run)), etag: answer.etag });
        this.next = next;
        const rows = [...this.view.rows, ...runs.filter((row) => !known.has(row.run))];
        this.show({ rows, total, ready: true, error: null });
      }
    } catch (error) {
      this.show({ ...this.view, error: explain(error) });
    } finally {
      this.busy = false;
    }
  }

  private merge(index: number, answer: Rows): void {
    const page = this.pages[index];
    if (!page) return;
    const fresh = new Map(answer.runs.map((row) => [row.run, row]));
    const oldest = this.view.rows.findLastIndex((row) => fresh.has(row.run));
    const kept = this.view.rows
      .filter((row, at) => fresh.has(row.run) || !page.runs.has(row.run) || at > oldest)
      .map((row) => fresh.get(row.run) ?? row);
    const known = new Set(kept.map((row) => row.run));
    const added = index === 0 ? answer.runs.filter((row) => !known.has(row.run)) : [];
    for (const row of added) page.runs.add(row.run);
    this.show({ ...this.view, rows: [...added, ...kept], total: answer.total, error: null });
  }

  private path(cursor: string | null): string {
    return withQuery("runs", { ...this.filter, limit: PAGE, before: cursor });
  }

  private show(view: RunListView): void {
    this.view = view;
    for (const listener of this.listeners) listener();
  }
}
