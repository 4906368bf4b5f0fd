/** Addresses after the hash: #/runs/ID/events?at=57. They never meet the API's paths. */
import { useSyncExternalStore } from "react";
import { decoded } from "../api/session";

export interface Route {
  parts: string[];
  query: URLSearchParams;
  text: string;
}

// A dialog does not outlive a reload.
if (dialogOf(window.history.state)) window.history.replaceState(null, "");
let known: Route = read();

function read(): Route {
  const text = window.location.hash.replace(/^#/, "") || "/runs";
  const [path = "", query = ""] = text.split("?");
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query), text };
}

function snapshot(): Route {
  const now = window.location.hash.replace(/^#/, "") || "/runs";
  if (now !== known.text) known = read();
  return known;
}

function listen(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  window.addEventListener("popstate", listener);
  return () => {
    window.removeEventListener("hashchange", listener);
    window.removeEventListener("popstate", listener);
  };
}

export function useRoute(): Route {
  return useSyncExternalStore(listen, snapshot);
}

export function currentRoute(): Route {
  return snapshot();
}

type Query = Record<string, string | number | null | undefined>;

/** The address of a page. */
export function href(parts: (string | number)[], query: Query = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") given.set(name, String(value));
  }
  const text = given.toString();
  return `#/${parts.map((part) => encodeURIComponent(String(part))).join("/")}${text ? `?${text}` : ""}`;
}

/** Another page, or another part of this one: Back leads here again. From a dialog it leads to the page below. */
export function go(to: string): void {
  if (to === window.location.hash) return;
  if (dialogOf(window.history.state)) window.history.replaceState(null, "", to);
  else window.history.pushState(null, "", to);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

/** Another address in place of this one: no new entry in the browser's history. */
export function replace(to: string): void {
  window.history.replaceState(window.history.state, "", to);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

/** The name of the dialog that an entry of the history stands for; "" for a page. */
export function dialogOf(state: unknown): string {
  return typeof state === "object" && state !== null && "dialog" in state ? String(state.dialog) : "";
}

/** A part of the query that a filter writes, as the page's own state: each choice is an entry of the history. */
export function useQuery(name: string): [string, (value: string) => void] {
  const route = useRoute();
  return [route.query.get(name) ?? "", (value) => go(withParts(currentRoute(), { [name]: value }))];
}

/** This page with parts of its query changed. */
export function withParts(route: Route, changes: Query): string {
  const query: Query = Object.fromEntries(route.query);
  return href(route.parts, { ...query, ...changes });
}
