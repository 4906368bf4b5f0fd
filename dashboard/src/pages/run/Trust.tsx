/** Whether the run's log can be trusted: what the last check of its history found, and a new check. */
import { send } from "../../api/client";
import type { Check, Checks } from "../../api/types";
import { plural } from "../../lib/format";
import { useMaySubmit } from "../../lib/currentUser";
import { useResource } from "../../lib/hooks";
import { useAct } from "../models/Download";
import { Icon } from "../../ui/Icon";
import { Time } from "../../ui/Time";
import { runPath, useRun } from "./context";

const WORDS: Record<Check["outcome"], string> = {
  intact: "History intact",
  broken: "History broken",
  wrong: "History intact, but not all that was made",
  unchecked: "Nothing is wrong with what could be checked",
};

export function Trust() {
  const { live } = useRun();
  const maySubmit = useMaySubmit();
  const [act, failure] = useAct();
  const path = runPath(live.run, "/checks");
  const answer = useResource<Checks>(path, (now) => (now?.running ? 2000 : false));
  const found = answer.data;
  if (!found) return null;
  const newest = found.checks[0];
  const begin = (rebuild: boolean) => act(() => send(path, "POST", { rebuild }).then(() => answer.reload()));
  const tone = found.changed !== null ? "broken" : newest?.outcome;
  return (
    <section className="trust" data-outcome={tone ?? "none"} aria-label="Trust in the log">
      <p className="trust-line">
        <span className="trust-word">
          {tone && <Icon name={tone === "intact" ? "check" : "cross"} />}
          <b>{found.changed !== null ? "History changed since the last check" : newest ? WORDS[newest.outcome] : "History not checked yet"}</b>
        </span>
        {newest && <When check={newest} version={live.version} />}
        {found.reproduced && (
          <span>
            rebuilt and equal <Time at={found.reproduced.at} />
          </span>
        )}
        {found.running ? (
          <span role="status">Checking …</span>
        ) : (
          maySubmit && (
            <span className="buttons">
              <button type="button" className="link" onClick={() => begin(false)}>{newest ? "Check again" : "Check"}</button>
              {live.status === "completed" && !live.delegates && (
                <button type="button" className="link" title="Makes the result again from nothing, which may take long, and compares the weights" onClick={() => begin(true)}>
                  Check and rebuild
                </button>
              )}
            </span>
          )
        )}
      </p>
      {found.changed !== null && <p className="note bad">{found.changed}</p>}
      {newest && newest.outcome !== "intact" && <Findings check={newest} />}
      {found.broken && found.broken.at !== newest?.at && (
        <div className="note bad">
          <strong>
            An earlier check found the history broken: <Time at={found.broken.at} />, by {found.broken.by}
          </strong>
          <span>{found.broken.findings[0]?.message}</span>
        </div>
      )}
      {[failure, found.error].filter(Boolean).map((text) => (
        <p key={text} role="status" className="note bad">The check could not be carried out: {text}</p>
      ))}
    </section>
  );
}

/** When and by whom, and what came since. */
function When({ check, version }: { check: Check; version: number }) {
  const since = version - check.version;
  return (
    <span>
      checked <Time at={check.at} /> by {check.by}
      {since > 0 && `, ${plural(since, "event")} since`}
    </span>
  );
}

/** What a check found; the first few, the rest at a terminal. */
function Findings({ check }: { check: Check }) {
  const wrong = check.findings.filter((one) => one.level === (check.errors > 0 ? "error" : "unchecked"));
  return (
    <div className={`note ${check.outcome === "unchecked" ? "warn" : "bad"}`}>
      {wrong.slice(0, 3).map((one) => (
        <span key={`${one.check} ${one.message}`}>
          {one.check}: {one.message}
        </span>
      ))}
      {wrong.length > 3 && <span>{plural(wrong.length - 3, "more finding")}: forge verify has all.</span>}
    </div>
  );
}
