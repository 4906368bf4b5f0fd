/** The list of runs, page by page as it is needed, kept fresh without moving what is in sight. */
import { type InfiniteData, useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { request, withQuery } from "../../api/client";
import { queries } from "../../api/queries";
import type { Row, Rows } from "../../api/types";
import { useThrottled, useTold } from "../../lib/hooks";

export interface Filter {
  status: string;
  owner: string;
  q: string;
  label: string;
  tag: string;
  /** "false" leaves out the runs that other runs have asked for; empty: all. */
  parts: string;
  kind: string;
  /** A column and "up" or "down"; both empty: the newest first. */
  sort: string;
  order: string;
}

export interface RunListView {
  rows: Row[];
  total: number;
  ready: boolean;
  error: unknown;
  /** Loads until the row of this index is there. */
  want: (index: number) => void;
  retry: () => void;
}

type Cursor = string | null;
type Page = Rows & { etag: string | null };
type Pages = InfiniteData<Page, Cursor>;

const PAGE = 200;

export function useRunList(filter: Filter): RunListView {
  const key = useMemo(() => ["runs", filter] as const, [filter]);
  const [last, setLast] = useState({ key, index: 0 });
  const wanted = last.key === key ? last.index : 0;
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => load(filter, pageParam, null, signal) as Promise<Page>,
    initialPageParam: null as Cursor,
    getNextPageParam: (last) => last.next,
    gcTime: 0,
    structuralSharing: false,
  });
  const { data, error, isFetching, hasNextPage, fetchNextPage, refetch } = query;
  const rows = useMemo(() => distinct(data?.pages.flatMap((page) => page.runs) ?? []), [data]);
  useEffect(() => {
    if (hasNextPage && !isFetching && error === null && rows.length <= wanted) void fetchNextPage();
  }, [hasNextPage, isFetching, error, rows, wanted, fetchNextPage]);
  useFreshPages(key, filter);
  const want = useCallback((index: number) => setLast((now) => (now.key === key && now.index >= index ? now : { key, index })), [key]);
  const retry = useCallback(() => void (data ? fetchNextPage() : refetch()), [data, fetchNextPage, refetch]);
  return { rows, total: data?.pages.at(-1)?.total ?? 0, ready: data !== undefined, error, want, retry };
}

/** Asks again for the pages whose runs had events, one by one: TanStack Query itself would ask for all of them. */
function useFreshPages(key: readonly ["runs", Filter], filter: Filter): void {
  const old = useRef(new Set<number>());
  const freshen = useThrottled(async () => {
    const todo = [...old.current];
    old.current.clear();
    for (const index of todo) {
      const known = queries.getQueryData<Pages>(key);
      const page = known?.pages[index];
      if (!known || !page) continue;
      try {
        const fresh = await load(filter, known.pageParams[index] ?? null, page.etag);
        if (fresh) queries.setQueryData<Pages>(key, (now) => now && { ...now, pages: withFresh(now.pages, index, fresh) });
      } catch {
        old.current.add(index);
      }
    }
  }, 700);
  useTold((told) => {
    const pages = queries.getQueryData<Pages>(key)?.pages ?? [];
    if (told.type === "reconnected") for (const index of pages.keys()) old.current.add(index);
    else old.current.add(Math.max(0, pages.findIndex((page) => page.runs.some((row) => row.run === told.run))));
    freshen();
  });
}

/** One page; null where the server says that nothing changed. */
async function load(filter: Filter, before: Cursor, etag: string | null, signal?: AbortSignal): Promise<Page | null> {
  const answer = await request<Rows>(withQuery("runs", { ...filter, limit: PAGE, before }), { etag, signal });
  return answer && { ...answer.data, etag: answer.etag };
}

/** The pages with one of them fresh. Runs that new ones push out of it stay in it; those that match no more go. */
function withFresh(pages: Page[], index: number, fresh: Page): Page[] {
  return pages.map((page, at) => {
    if (at !== index) return { ...page, total: fresh.total };
    const there = new Set(fresh.runs.map((row) => row.run));
    const oldest = page.runs.findLastIndex((row) => there.has(row.run));
    const pushed = page.runs.slice(oldest + 1).filter((row) => !there.has(row.run));
    return { ...fresh, runs: [...fresh.runs, ...pushed], next: page.next };
  });
}

function distinct(rows: Row[]): Row[] {
  return [...new Map(rows.map((row) => [row.run, row])).values()];
}
