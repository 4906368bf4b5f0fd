/** Parts of the page that are fetched when they are needed. They wait for a server that is away. */
import { type ComponentType, lazy, useSyncExternalStore } from "react";

const AGAIN = 2000;
/** Within so many milliseconds the page is not reloaded twice: it would go on for ever. */
const APART = 15_000;
const KEY = "forge.reloaded";
const listeners = new Set<() => void>();
let away = 0;

/** A component whose file is fetched at first use. It never fails because the server is away. */
export function lazily<P>(load: () => Promise<{ default: ComponentType<P> }>) {
  return lazy(() => arrive(load));
}

/** Whether a part of the page waits for the server. */
export function useAway(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => away > 0,
  );
}

async function arrive<T>(load: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await load();
    } catch (cause) {
      if (await answers()) {
        // The server is there and the file is not: it has another build, or the browser keeps the failure.
        if (!reload()) throw cause;
        return new Promise<T>(() => undefined);
      }
      await back();
    }
  }
}

/** Whether the server gives this page out. */
async function answers(): Promise<boolean> {
  return (await index()) !== null;
}

async function index(): Promise<string | null> {
  try {
    const response = await fetch("./", { cache: "no-store" });
    return response.ok ? await response.text() : null;
  } catch {
    return null;
  }
}

async function back(): Promise<void> {
  become(away + 1);
  try {
    do await new Promise((go) => window.setTimeout(go, AGAIN));
    while (!(await answers()));
  } finally {
    become(away - 1);
  }
}

function become(next: number): void {
  away = next;
  for (const listener of listeners) listener();
}

/** Loads the page anew at its address; false where that was done just now. */
export function reload(): boolean {
  try {
    const before = Number(window.sessionStorage.getItem(KEY));
    if (Date.now() - before < APART) return false;
    window.sessionStorage.setItem(KEY, String(Date.now()));
  } catch {
    return false;
  }
  window.location.reload();
  return true;
}

/** Whether the server has another build than the one that runs here. */
export async function isOld(): Promise<boolean> {
  const own = document.querySelector<HTMLScriptElement>('script[type="module"][src]')?.getAttribute("src");
  const text = await index();
  return Boolean(own) && text !== null && text.includes("<script") && !text.includes(own ?? "");
}
