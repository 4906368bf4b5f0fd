/** What is said where there is nothing to show, or something went wrong. */
import type { ReactNode } from "react";
import { ApiError, explain } from "../api/client";
import { type Resource, useTitle } from "../lib/hooks";
import type { Route } from "../lib/router";
import { Coded } from "./Coded";

interface FailureProps {
  error: unknown;
  onRetry?: () => void;
  /** In place of the status in HTTP's words, for what the server refuses (422). */
  refused?: string;
}

export function Failure({ error, onRetry, refused }: FailureProps) {
  const status = error instanceof ApiError ? error.problem.title : "Something went wrong";
  const title = refused !== undefined && error instanceof ApiError && error.status === 422 ? refused : status;
  const detail = explain(error);
  const named = error instanceof ApiError ? (error.problem.errors ?? []) : [];
  const parts = named.filter((part) => !detail.includes(part.message));
  return (
    <div className="note bad" role="alert">
      <strong>{title}</strong>
      {detail !== title && <span className="sentence"><Coded text={detail} /></span>}
      {parts.map((part) => (
        <span key={part.field + part.message}>
          <code>{part.field}</code> {part.message}
        </span>
      ))}
      {onRetry && (
        <span>
          <button type="button" className="button small" onClick={onRetry}>
            Try again
          </button>
        </span>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** An address that leads nowhere. */
export function NotFound({ route, what = "page" }: { route: Route; what?: string }) {
  useTitle("Not found");
  return (
    <Empty title={`There is no such ${what}`}>
      <p>
        Nothing is at <code>#{route.text}</code>.
      </p>
      <a href="#/runs">All runs</a>
    </Empty>
  );
}

/** The answer of a resource, or what stands in its place. */
export function Loaded<T>({ of, children }: { of: Resource<T>; children: (data: T) => ReactNode }) {
  if (of.data === undefined) {
    if (of.error) return <Failure error={of.error} onRetry={() => void of.reload()} />;
    return (
      <p className="loading" role="status">
        Loading …
      </p>
    );
  }
  return (
    <>
      {of.error !== null && <Failure error={of.error} onRetry={() => void of.reload()} />}
      {children(of.data)}
    </>
  );
}
