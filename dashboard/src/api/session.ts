/** Who is here: the token, kept in this browser. */

const KEY = "forge.token";
const listeners = new Set<() => void>();
let current: string | null = null;
let refused = false;

/** The token kept from before, or the one in `#token=…`, which is taken out of the address. */
export function begin(): void {
  current = stored();
  takeFromAddress();
  // Before the router hears of it.
  window.addEventListener("hashchange", takeFromAddress);
}

function takeFromAddress(): void {
  const found = /^#\/?\??token=([^&]+)/.exec(window.location.hash);
  if (!found?.[1]) return;
  window.history.replaceState(null, "", window.location.pathname + window.location.search + "#/runs");
  keep(decodeURIComponent(found[1]));
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
