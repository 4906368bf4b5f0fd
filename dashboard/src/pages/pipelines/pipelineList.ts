/** The list of pipelines, page by page, asked for again when runs have events. */
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { request, withQuery } from "../../api/client";
import type { PipelineRow, Pipelines } from "../../api/types";
import { useThrottled, useTold } from "../../lib/hooks";

export interface PipelineFilter {
  status: string;
  owner: string;
  q: string;
  sort: string;
  order: string;
}

export interface PipelineListView {
  rows: PipelineRow[];
  total: number;
  ready: boolean;
  error: unknown;
  /** Loads the next page; null if there is none. */
  more: (() => void) | null;
  busy: boolean;
  retry: () => void;
}

const PAGE = 100;
const EVERY = 1500;

export function usePipelineList(filter: PipelineFilter): PipelineListView {
  const query = useInfiniteQuery({
    queryKey: ["pipelines", filter] as const,
    queryFn: async ({ pageParam, signal }) => {
      const answer = await request<Pipelines>(withQuery("pipelines", { ...filter, limit: PAGE, before: pageParam }), { signal });
      return answer?.data as Pipelines;
    },
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
    placeholderData: keepPreviousData,
  });
  const { data, error, isFetching, hasNextPage, fetchNextPage, refetch } = query;
  useTold(useThrottled(() => void refetch({ cancelRefetch: false }), EVERY));
  const rows = new Map((data?.pages ?? []).flatMap((page) => page.pipelines).map((row) => [row.run, row]));
  return {
    rows: [...rows.values()],
    total: data?.pages.at(-1)?.total ?? 0,
    ready: data !== undefined,
    error,
    more: hasNextPage ? () => void fetchNextPage() : null,
    busy: isFetching,
    retry: () => void refetch(),
  };
}
