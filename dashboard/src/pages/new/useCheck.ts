/** Asks the server, a moment after the last key, whether a run could be submitted so. */
import { useEffect, useState } from "react";
import { ApiError, request } from "../../api/client";
import type { Checked } from "../../api/types";
import { useDebounced, useTold } from "../../lib/hooks";
import type { Body } from "./draft";

export interface CheckState {
  answer: Checked | null;
  error: unknown;
  busy: boolean;
}

export function useCheck(body: Body, ready: boolean): CheckState {
  const text = JSON.stringify(body);
  const settled = useDebounced(text, 600);
  const [again, setAgain] = useState(0);
  useTold((told) => {
    if (told.type === "reconnected") setAgain((n) => n + 1);
  });
  const [checked, setChecked] = useState<CheckState>({ answer: null, error: null, busy: false });
  useEffect(() => {
    if (!ready) {
      setChecked({ answer: null, error: null, busy: false });
      return;
    }
    if (settled !== text) return; // it was made ready just now: what is settled is older
    const stop = new AbortController();
    let waiting: number | undefined;
    const ask = () => {
      setChecked((old) => ({ ...old, busy: true }));
      request<Checked>("runs/check", { method: "POST", body: JSON.parse(settled) as Body, signal: stop.signal })
        .then((answer) => setChecked({ answer: answer?.data ?? null, error: null, busy: false }))
        .catch((error: unknown) => {
          if (stop.signal.aborted) return;
          // The server still reads for an older check, and says when to ask again.
          const again = error instanceof ApiError && error.status === 503 ? error.again : null;
          if (again !== null) waiting = window.setTimeout(ask, 1000 * again);
          else setChecked({ answer: null, error, busy: false });
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
