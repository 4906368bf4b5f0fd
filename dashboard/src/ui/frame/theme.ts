/** Light or dark: as the system says, until somebody chooses. */
import { useSyncExternalStore } from "react";

type Theme = "light" | "dark";

const KEY = "forge.theme";
const listeners = new Set<() => void>();
const system = window.matchMedia("(prefers-color-scheme: dark)");

export function beginTheme(): void {
  let chosen: string | null = null;
  try {
    chosen = window.localStorage.getItem(KEY);
  } catch {
    // Nothing is kept: the system's it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  system.addEventListener("change", tell);
}

function now(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return system.matches ? "dark" : "light";
}

export function useTheme(): [Theme, () => void] {
  const theme = useSyncExternalStore(listen, now);
  return [theme, () => choose(theme === "dark" ? "light" : "dark")];
}

function choose(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  try {
    window.localStorage.setItem(KEY, theme);
  } catch {
    // It holds as long as the page.
  }
  tell();
}

function listen(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(): void {
  for (const listener of listeners) listener();
}
