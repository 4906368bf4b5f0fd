/** Asks the server, a moment after the last key, whether a run could be submitted so. */
import { useEffect, useState } from "react";
import { ApiError, explain, request } from "../../api/client";
import type { Checked } from "../../api/types";
import { useDebounced, useTold } from "../../lib/hooks";
import type { Body } from "./draft";

export interface CheckState {
  answer: Checked | null;
  error: unknown;
  busy: boolean;
  /** When this check began, as of `Date.now()`; null before the first. */
  since: number | null;
  /** What the server waits for, in its words; empty before it says anything. */
  waits: string;
}

const NOTHING: CheckState = { answer: null, error: null, busy: false, since: null, waits: "" };

export function useCheck(body: Body, ready: boolean): CheckState {
  const text = JSON.stringify(body);
  const settled = useDebounced(text, 600);
  const [again, setAgain] = useState(0);
  useTold((told) => {
    if (told.type === "reconnected") setAgain((n) => n + 1);
  });
  const [checked, setChecked] = useState<CheckState>(NOTHING);
  useEffect(() => {
    if (!ready) {
      setChecked(NOTHING);
      return;
    }
    if (settled !== text) return; // it was made ready just now: what is settled is older
    const stop = new AbortController();
    let waiting: number | undefined;
    const since = Date.now();
    // An error is of the older text: it goes when the new text is checked.
    setChecked((old) => ({ answer: old.answer, error: null, busy: true, since, waits: "" }));
    const ask = () => {
      request<Checked>("runs/check", { method: "POST", body: JSON.parse(settled) as Body, signal: stop.signal })
        .then((answer) => setChecked({ ...NOTHING, answer: answer?.data ?? null }))
        .catch((error: unknown) => {
          if (stop.signal.aborted) return;
          // The server still reads models, and says which, and when to ask again.
          const again = error instanceof ApiError && error.status === 503 ? error.again : null;
          if (again !== null) {
            setChecked((old) => ({ ...old, waits: explain(error) }));
            waiting = window.setTimeout(ask, 1000 * again);
          } else setChecked({ ...NOTHING, error });
        });
    };
    ask();
    return () => {
      stop.abort();
      window.clearTimeout(waiting);
    };
  }, [settled, ready, again]);
  return { ...checked, busy: checked.busy || settled !== text };
}
