/** Small hooks that every page uses. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import { liveState, onLiveState, onTold, type LiveState, type Told } from "../api/live";
import { read, refresh } from "../api/queries";
import { onSession, token } from "../api/session";

export interface Resource<T> {
  data: T | undefined;
  error: unknown;
  /** What is shown belongs to an earlier path, until the new answer is there. */
  stale: boolean;
  reload: () => Promise<void>;
}

/** What a path of the API answers, asked for again every so many milliseconds. While a new path loads, the last answer stays. */
export function useResource<T>(path: string | null, every?: number | ((data: T | undefined) => number | false)): Resource<T> {
  const query = useQuery({
    queryKey: [path ?? ""] as const,
    queryFn: read<T>,
    enabled: path !== null,
    placeholderData: keepPreviousData,
    refetchInterval: typeof every === "function" ? ({ state }) => every(state.data?.data) : (every ?? false),
  });
  const reload = useCallback(() => (path === null ? Promise.resolve() : refresh(path)), [path]);
  return { data: query.data?.data, error: query.error, stale: query.isPlaceholderData, reload };
}

/** A value that follows after it has been still for a while. */
export function useDebounced<T>(value: T, milliseconds: number): T {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => settle(value), milliseconds);
    return () => window.clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

/** A value kept in this browser. */
export function useStored<T>(name: string, initial: T): [T, (value: T) => void] {
  const key = `forge.${name}`;
  const [value, set] = useState<T>(() => {
    try {
      const text = window.localStorage.getItem(key);
      return text === null ? initial : (JSON.parse(text) as T);
    } catch {
      return initial;
    }
  });
  const put = useCallback(
    (next: T) => {
      set(next);
      try {
        window.localStorage.setItem(key, JSON.stringify(next));
      } catch {
        // It holds as long as the page.
      }
    },
    [key],
  );
  return [value, put];
}

/** The width of an element, as it changes. */
export function useWidth<T extends Element>(initial = 640): [(element: T | null) => void, number] {
  const [element, setElement] = useState<T | null>(null);
  const [width, setWidth] = useState(initial);
  useLayoutEffect(() => {
    if (!element) return;
    setWidth(Math.round(element.clientWidth));  // before anything is painted that is too wide for a phone
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setWidth(Math.round(entry.contentRect.width));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [setElement, width];
}

export function useToken(): string | null {
  return useSyncExternalStore(onSession, token);
}

export function useLiveState(): LiveState {
  return useSyncExternalStore(onLiveState, liveState);
}

/** Calls with what the live connection says. */
export function useTold(listener: (told: Told) => void): void {
  const newest = useRef(listener);
  useEffect(() => {
    newest.current = listener;
  });
  useEffect(() => onTold((told) => newest.current(told)), []);
}

/** Milliseconds in which calls are taken together: events of one append come one by one. */
const TOGETHER = 25;

/** Calls almost at once, but at most once in so many milliseconds, and after the last time too. */
export function useThrottled(call: () => void, milliseconds: number): () => void {
  const newest = useRef(call);
  const timer = useRef<number | undefined>(undefined);
  const called = useRef(-Infinity);
  useEffect(() => {
    newest.current = call;
  });
  useEffect(() => () => window.clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current !== undefined) return;
    const pause = called.current + milliseconds - performance.now();
    timer.current = window.setTimeout(
      () => {
        timer.current = undefined;
        called.current = performance.now();
        newest.current();
      },
      Math.max(TOGETHER, pause),
    );
  }, [milliseconds]);
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Agent Forge` : "Agent Forge";
  }, [title]);
}
