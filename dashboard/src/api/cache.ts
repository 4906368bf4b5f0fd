/** Answers kept by path, with their ETags; whoever shows one is told when it changes. */
import { onTold } from "./live";
import { onSession } from "./session";
import { request } from "./client";

export interface Entry<T = unknown> {
  data: T | undefined;
  error: unknown;
  loading: boolean;
  status: number;
}

interface Slot {
  entry: Entry;
  etag: string | null;
  listeners: Set<() => void>;
  flight: Promise<void> | null;
  again: boolean;
}

const BLANK: Entry = { data: undefined, error: null, loading: false, status: 0 };
/** Entries that nobody shows are dropped beyond this number, the oldest first. */
const MOST = 300;
const slots = new Map<string, Slot>();

onSession(() => {
  for (const [path, slot] of slots) {
    slot.etag = null;
    if (slot.listeners.size === 0) slots.delete(path);
    else put(slot, BLANK);
  }
});

// What failed while the server was away is asked for again.
onTold((told) => {
  if (told.type !== "reconnected") return;
  for (const [path, slot] of slots) {
    if (slot.entry.error !== null && slot.listeners.size > 0) void refresh(path);
  }
});

export function peek<T>(path: string): Entry<T> {
  return (slots.get(path)?.entry ?? BLANK) as Entry<T>;
}

export function subscribe(path: string, listener: () => void): () => void {
  const slot = open(path);
  slot.listeners.add(listener);
  return () => {
    slot.listeners.delete(listener);
  };
}

/** Asks again, unless it is being asked already: then once more after that. */
export function refresh(path: string): Promise<void> {
  const slot = open(path);
  if (slot.flight) {
    slot.again = true;
    return slot.flight;
  }
  slot.flight = fetchInto(path, slot).finally(() => {
    slot.flight = null;
    if (slot.again) {
      slot.again = false;
      void refresh(path);
    }
  });
  return slot.flight;
}

/** Asks again for what is shown and matches; forgets the rest that matches. */
export function invalidate(matches: (path: string) => boolean): void {
  for (const [path, slot] of slots) {
    if (!matches(path)) continue;
    if (slot.listeners.size > 0) void refresh(path);
    else slots.delete(path);
  }
}

async function fetchInto(path: string, slot: Slot): Promise<void> {
  put(slot, { ...slot.entry, loading: true });
  try {
    const answer = await request<unknown>(path, { etag: slot.entry.data === undefined ? null : slot.etag });
    if (answer) {
      slot.etag = answer.etag;
      put(slot, { data: answer.data, error: null, loading: false, status: answer.status });
    } else {
      put(slot, { ...slot.entry, error: null, loading: false });
    }
  } catch (error) {
    put(slot, { ...slot.entry, error, loading: false });
  }
}

function put(slot: Slot, entry: Entry): void {
  slot.entry = entry;
  for (const listener of slot.listeners) listener();
}

function open(path: string): Slot {
  const known = slots.get(path);
  if (known) return known;
  const slot: Slot = { entry: BLANK, etag: null, listeners: new Set(), flight: null, again: false };
  slots.set(path, slot);
  if (slots.size > MOST) sweep();
  return slot;
}

function sweep(): void {
  for (const [path, slot] of slots) {
    if (slots.size <= MOST) return;
    if (slot.listeners.size === 0 && !slot.flight) slots.delete(path);
  }
}
