/** Asks the server, a moment after the last key, whether a run could be submitted so. */
import { useEffect, useState } from "react";
import { ApiError, request } from "../../api/client";
import type { Check } from "../../api/types";
import { useDebounced, useTold } from "../../lib/hooks";
import type { Body } from "./draft";

export interface Checked {
  answer: Check | null;
  error: unknown;
  busy: boolean;
}

export function useCheck(body: Body, ready: boolean): Checked {
  const text = JSON.stringify(body);
  const settled = useDebounced(text, 600);
  const [again, setAgain] = useState(0);
  useTold((told) => {
    if (told.type === "reconnected") setAgain((n) => n + 1);
  });
  const [checked, setChecked] = useState<Checked>({ answer: null, error: null, busy: false });
  useEffect(() => {
    if (!ready) {
      setChecked({ answer: null, error: null, busy: false });
      return;
    }
    const stop = new AbortController();
    setChecked((old) => ({ ...old, busy: true }));
    request<Check>("runs/check", { method: "POST", body: JSON.parse(settled) as Body, signal: stop.signal })
      .then((answer) => setChecked({ answer: answer?.data ?? null, error: null, busy: false }))
      .catch((error: unknown) => {
        if (!stop.signal.aborted) setChecked({ answer: null, error, busy: false });
      });
    return () => stop.abort();
  }, [settled, ready, again]);
  return { ...checked, busy: checked.busy || settled !== text };
}

/** The problems that the server names, by field; those of config under the setting's name. */
export function byField(error: unknown): Record<string, string> {
  if (!(error instanceof ApiError)) return {};
  return Object.fromEntries(
    (error.problem.errors ?? []).map((part) => [part.field.replace(/^(body\.)?(config\.)?/, "").split(".")[0] ?? "", part.message]),
  );
}
