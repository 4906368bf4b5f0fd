/** Requests to the API: the token, problems as errors, ETags. */
import type { Problem, Ticket } from "./types";
import { readJson, writeJson } from "../lib/bigJson";
import { expire, token } from "./session";

export class ApiError extends Error {
  readonly problem: Problem;
  /** The seconds after which the server wants to be asked again; null where it says none. */
  readonly again: number | null;

  constructor(problem: Problem, again: number | null = null) {
    super(problem.detail);
    this.problem = problem;
    this.again = again;
  }

  get status(): number {
    return this.problem.status;
  }
}

export interface Answer<T> {
  data: T;
  etag: string | null;
  status: number;
  location: string | null;
}

interface Wish {
  method?: string;
  body?: unknown;
  etag?: string | null;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** One request. Answers null where the server says that nothing changed (304). */
export async function request<T>(path: string, wish: Wish = {}): Promise<Answer<T> | null> {
  const headers: Record<string, string> = { Accept: "application/json", ...wish.headers };
  const bearer = token();
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (wish.etag) headers["If-None-Match"] = wish.etag;
  if (wish.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method: wish.method ?? "GET",
      headers,
      body: wish.body === undefined ? undefined : writeJson(wish.body),
      signal: wish.signal,
      cache: "no-store",
    });
  } catch (cause) {
    if (wish.signal?.aborted) throw cause;
    throw problem("The server does not answer", 0, "The server does not answer. Is `forge serve` running?");
  }
  if (response.status === 304) return null;
  if (!response.ok) throw await failure(response);
  const text = await response.text();
  return {
    data: text ? readJson<T>(text) : (null as T),
    etag: response.headers.get("ETag"),
    status: response.status,
    location: response.headers.get("Location"),
  };
}

async function failure(response: Response): Promise<ApiError> {
  if (response.status === 401) expire();
  let told: Partial<Problem> = {};
  try {
    told = (await response.json()) as Partial<Problem>;
  } catch {
    // A proxy's error page says nothing more than its status.
  }
  const title = told.title ?? (response.statusText || `Error ${response.status}`);
  const again = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return problem(title, response.status, told.detail ?? title, told.errors, Number.isNaN(again) ? null : again);
}

function problem(title: string, status: number, detail = title, errors: Problem["errors"] = null, again: number | null = null): ApiError {
  return new ApiError({ type: "about:blank", title, status, detail, errors }, again);
}

/** A request whose answer is always wanted. */
export async function send<T>(path: string, method: string, body?: unknown, more: Wish = {}): Promise<Answer<T>> {
  const answer = await request<T>(path, { ...more, method, body });
  if (!answer) throw problem("Nothing changed", 304);
  return answer;
}

/** Saves what a path answers as a file of this name. */
export async function download(path: string, name: string): Promise<void> {
  const link = await linkTo(path);
  link.download = name;
  link.click();
}

/** Opens what a path answers in a tab of its own. */
export async function openFile(path: string): Promise<void> {
  const link = await linkTo(path);
  link.target = "_blank";
  link.rel = "noopener";
  link.click();
}

/** A link to a copy of what a path answers: a link to the path itself would carry no token. */
async function linkTo(path: string): Promise<HTMLAnchorElement> {
  const bearer = token();
  let response: Response;
  try {
    response = await fetch(path, { headers: bearer ? { Authorization: `Bearer ${bearer}` } : {}, cache: "no-store" });
  } catch {
    throw problem("The server does not answer", 0, "The server does not answer. Is `forge serve` running?");
  }
  if (!response.ok) throw await failure(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  // The browser has taken the file over by then.
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return link;
}

/** Has the browser save a model's file: it is written to disk as it comes, however large it is. */
export async function save(model: string, rest: string): Promise<void> {
  const { data } = await send<Ticket>(`models/${encodeURIComponent(model)}/tickets`, "POST");
  const link = document.createElement("a");
  link.href = `${data.path.slice(1)}${rest}${rest.includes("?") ? "&" : "?"}ticket=${encodeURIComponent(data.ticket)}`;
  link.download = "";
  link.click();
}

/** The path with its query; parts that are null, undefined or empty are left out. */
export function withQuery(path: string, query: Record<string, string | number | null | undefined>): string {
  const parts = Object.entries(query)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return parts.length ? `${path}?${parts.join("&")}` : path;
}

/** The words of an error for a person. */
export function explain(error: unknown): string {
  if (error instanceof ApiError) return error.problem.detail;
  return error instanceof Error ? error.message : String(error);
}

/** What the server says of single fields of a body; of settings under the setting's name. */
export function wrongFields(error: unknown): Record<string, string> {
  if (!(error instanceof ApiError)) return {};
  const parts = error.problem.errors ?? [];
  return Object.fromEntries(parts.map((part) => [part.field.replace(/^(config|settings)\./, "").split(".")[0] ?? "", part.message]));
}
