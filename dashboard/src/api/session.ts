/** Who is here: the token, kept in this browser. */

const KEY = "forge.token";
const listeners = new Set<() => void>();
let current: string | null = null;
let refused = false;
/** A token of the address that would take the place of the kept one; the user is asked. */
let other: string | null = null;

/** The token kept from before, or the one in `#token=…`, which is taken out of the address. */
export function begin(): void {
  current = stored();
  takeFromAddress();
  // Before the router hears of it.
  window.addEventListener("hashchange", takeFromAddress);
}

function takeFromAddress(): void {
  const found = /^#\/?\??token=([^&]*)/.exec(window.location.hash);
  if (!found) return;
  window.history.replaceState(null, "", window.location.pathname + window.location.search + "#/runs");
  const given = decoded(found[1] ?? "").trim();
  if (!given || given === current) return;
  if (current === null) {
    keep(given);
    return;
  }
  other = given;
  tell();
}

/** The text without its percent signs; as it is where they say nothing. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The token that the address offers instead of the kept one. */
export function offered(): string | null {
  return other;
}

/** What the user says to it. */
export function answer(yes: boolean): void {
  const given = other;
  other = null;
  if (yes && given !== null) keep(given);
  else tell();
}

export function token(): string | null {
  return current;
}

/** Whether the server refused the last token. */
export function wasRefused(): boolean {
  return refused;
}

export function keep(value: string): void {
  current = value.trim();
  refused = false;
  try {
    window.localStorage.setItem(KEY, current);
  } catch {
    // A browser that keeps nothing: the token lives as long as the page.
  }
  tell();
}

/** Signs out. */
export function forget(): void {
  current = null;
  refused = false;
  try {
    window.localStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
  tell();
}

/** The server does not take the token any more. */
export function expire(): void {
  if (current === null) return;
  forget();
  refused = true;
  tell();
}

export function onSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function stored(): string | null {
  try {
    return window.localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function tell(): void {
  for (const listener of listeners) listener();
}
