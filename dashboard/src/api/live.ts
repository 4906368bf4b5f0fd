/** The live connection: one WebSocket for the page, which reconnects and says what it saw last. */
import type { Event } from "./types";
import { request } from "./client";
import { onSession, token } from "./session";

export type LiveState = "off" | "connecting" | "live" | "reconnecting";

export interface Told {
  type: "event" | "progress" | "complete" | "reconnected";
  run?: string;
  place?: number;
  position?: number;
  event?: Event;
}

/** Close code of a connection that may not go on (RFC 6455, 7.4.1). */
const REFUSED = 1008;

type Listener = (told: Told) => void;

const listeners = new Set<Listener>();
const watchers = new Set<() => void>();
let socket: WebSocket | null = null;
let state: LiveState = "off";
let last: number | null = null;
let attempts = 0;
let timer: number | undefined;

export function liveState(): LiveState {
  return state;
}

export function onLiveState(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function onTold(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Connects while there is a token. */
export function goLive(): void {
  onSession(() => {
    close();
    if (token()) connect();
  });
  window.addEventListener("online", () => {
    if (state === "reconnecting") connect();
  });
  if (token()) connect();
}

function connect(): void {
  window.clearTimeout(timer);
  const bearer = token();
  if (!bearer) return;
  become(attempts === 0 ? "connecting" : "reconnecting");
  const url = new URL("ws", window.location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = "";
  const mine = new WebSocket(url);
  socket = mine;
  mine.onopen = () => mine.send(JSON.stringify({ type: "authenticate", token: bearer }));
  mine.onmessage = (message) => {
    if (mine === socket) hear(mine, JSON.parse(String(message.data)) as Heard);
  };
  mine.onclose = (event) => {
    if (mine !== socket) return;
    // The server lets those go whose token is void: a request says so, and leads to signing in.
    if (event.code === REFUSED) request("me").catch(() => undefined);
    wait();
  };
}

interface Heard extends Omit<Told, "type"> {
  type: string;
  position?: number;
}

function hear(from: WebSocket, heard: Heard): void {
  switch (heard.type) {
    case "welcome": {
      const first = last === null;
      if (first) last = heard.position ?? null;
      from.send(JSON.stringify({ type: "subscribe", ...(last === null ? {} : { after: last }) }));
      break;
    }
    case "subscribed": {
      const before = attempts > 0;
      attempts = 0;
      become("live");
      if (before) tell({ type: "reconnected" });
      break;
    }
    case "event":
      if (heard.position !== undefined) {
        if (last !== null && heard.position <= last) return;
        last = heard.position;
      }
      tell(heard as Told);
      break;
    case "progress":
    case "complete":
      tell(heard as Told);
      break;
    default:
  }
}

function wait(): void {
  socket = null;
  if (!token()) {
    become("off");
    return;
  }
  attempts += 1;
  become("reconnecting");
  const pause = Math.min(15_000, 500 * 2 ** Math.min(attempts, 6)) * (0.75 + Math.random() / 2);
  timer = window.setTimeout(connect, pause);
}

function close(): void {
  window.clearTimeout(timer);
  const old = socket;
  socket = null;
  attempts = 0;
  last = null;
  // One that is still connecting is closed when it is there: sooner, the browser complains.
  if (old?.readyState === WebSocket.CONNECTING) old.onopen = () => old.close();
  else old?.close();
  become("off");
}

function become(next: LiveState): void {
  if (state === next) return;
  state = next;
  for (const watcher of watchers) watcher();
}

function tell(told: Told): void {
  for (const listener of listeners) listener(told);
}
