/** The draft of a new run. It belongs to an address, and survives a reload in this tab. */
import { useEffect, useState } from "react";
import { href, type Route } from "../../lib/router";
import { BLANK, type Draft, MERGING } from "./draft";

interface Kept {
  draft: Draft;
  /** False: the form is as its address asks for it. */
  changed: boolean;
  put: (draft: Draft) => void;
  /** The draft of a run that is asked for again, if there is no other yet. */
  fill: (draft: Draft) => void;
  /** Forgets what was typed: another draft, or the one that the address asks for. */
  drop: (draft?: Draft) => void;
  /** The address of the form for another kind, which begins with what both have. */
  other: (kind: string) => string;
}

export function useDraft(route: Route): Kept {
  const name = nameOf(route.query);
  const [kept, setKept] = useState(() => read(name, route));
  const current = kept.name === name ? kept : read(name, route);
  useEffect(() => {
    // Back and forward lead to another draft.
    if (kept.name !== name) setKept(current);
  });
  const set = (draft: Draft, changed: boolean) => {
    setKept({ name, draft, changed });
    write(name, changed ? draft : null);
  };
  return {
    draft: current.draft,
    changed: current.changed,
    put: (draft) => set(draft, true),
    fill: (draft) => !current.changed && set(draft, false),
    drop: (draft = begin(route)) => set(draft, false),
    other: (kind) => {
      const query = { kind };
      const there = nameOf(new URLSearchParams(query));
      if (stored(there) === null && current.changed) write(there, { ...current.draft, kind, more: {}, roles: {}, file: "" });
      return href(["new"], query);
    },
  };
}

/** The form as an address asks for it: a kind, sources, a base. */
function begin({ query }: Route): Draft {
  const sources = query.getAll("source");
  return {
    ...BLANK,
    kind: query.get("kind") ?? MERGING,
    models: sources.length > 1 ? sources : [...sources, "", ""].slice(0, 2),
    base: query.get("base") ?? "",
  };
}

function nameOf(query: URLSearchParams): string {
  const whole = new URLSearchParams(query);
  if (!whole.has("kind") && !whole.has("from")) whole.set("kind", MERGING);
  whole.sort();
  return `forge.draft.${whole.toString()}`;
}

function read(name: string, route: Route): { name: string; draft: Draft; changed: boolean } {
  const draft = stored(name);
  return { name, draft: draft ?? begin(route), changed: draft !== null };
}

function stored(name: string): Draft | null {
  try {
    const text = window.sessionStorage.getItem(name);
    return text === null ? null : { ...BLANK, ...(JSON.parse(text) as Draft) };
  } catch {
    return null;
  }
}

function write(name: string, draft: Draft | null): void {
  try {
    if (draft === null) window.sessionStorage.removeItem(name);
    else window.sessionStorage.setItem(name, JSON.stringify(draft));
  } catch {
    // It holds as long as the page.
  }
}
