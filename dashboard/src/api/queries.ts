/** Answers of the API, kept by path: TanStack Query with ETags. The live connection says what is old; nothing is guessed. */
import { QueryClient, type QueryFunctionContext } from "@tanstack/react-query";
import { request } from "./client";
import { onTold } from "./live";
import { onSession, token } from "./session";

export interface Kept<T> {
  data: T;
  etag: string | null;
}

export const queries = new QueryClient({
  defaultOptions: {
    queries: { gcTime: 60_000, networkMode: "always", refetchOnReconnect: false, refetchOnWindowFocus: false, retry: false },
  },
});

/** Forgets the answers to another token, and asks again, after the server was away, for what failed. */
export function beginQueries(): void {
  let held = token();
  onSession(() => {
    if (token() === held) return;
    held = token();
    queries.clear();
  });
  onTold((told) => {
    if (told.type !== "reconnected") return;
    void queries.refetchQueries({ type: "active", predicate: (query) => query.state.status === "error" }, { cancelRefetch: false });
  });
}

/** The answer to GET of a path; the kept one where the server says that it is still so. */
export async function read<T>({ queryKey: [path], signal }: QueryFunctionContext<readonly [string]>): Promise<Kept<T>> {
  const known = queries.getQueryData<Kept<T>>([path]);
  const answer = await request<T>(path, { etag: known?.etag ?? null, signal });
  return (answer ?? known) as Kept<T>;
}

/** Asks again; if it is being asked already, once more after that: the answer under way may be older than the change. */
export async function refresh(path: string): Promise<void> {
  const query = queries.getQueryCache().find({ queryKey: [path] });
  if (query?.state.fetchStatus === "fetching") await query.promise?.catch(() => undefined);
  await queries.refetchQueries({ queryKey: [path], exact: true, type: "active" }, { cancelRefetch: false });
}

/** Asks again for what is shown and matches; forgets the rest that matches. */
export function invalidate(matches: (path: string) => boolean): void {
  for (const query of queries.getQueryCache().getAll()) {
    const [path, ...more] = query.queryKey as [string, ...unknown[]];
    if (more.length > 0 || !matches(path)) continue;
    if (query.isActive()) void refresh(path);
    else queries.removeQueries({ queryKey: [path], exact: true });
  }
}
