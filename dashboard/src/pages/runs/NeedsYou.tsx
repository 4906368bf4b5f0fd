/** What waits for this user: stopped gates, failed runs, workers that are gone. Facts of the log and of the queue. */
import { useState } from "react";
import { explain, send } from "../../api/client";
import { invalidate } from "../../api/queries";
import type { GoneWorker, NeedingRun, Needs } from "../../api/types";
import { duration, plural } from "../../lib/format";
import { useResource, useStored, useThrottled, useTold } from "../../lib/hooks";
import { href } from "../../lib/router";
import { OverrideDialog } from "../../panels/kinds/OverrideDialog";
import { StageMark } from "../../ui/StageMark";
import { Time } from "../../ui/Time";

const EVERY = 10_000;
/** Rows that are shown at first. */
const FEW = 4;

/** Run → its events, worker → when its status began, as they were hidden: news of them is shown again. */
type Hidden = Record<string, number>;

export function NeedsYou() {
  const needs = useResource<Needs>("needs", EVERY);
  const [hidden, hide] = useStored<Hidden>("needs-hidden", {});
  const [all, setAll] = useState(false);
  useTold(useThrottled(() => invalidate((path) => path === "needs"), 1000));
  const { runs = [], workers = [], total = 0 } = needs.data ?? {};
  const news = runs.filter((run) => hidden[run.run] !== run.version);
  const rows = [...news.filter((run) => run.stopped !== null), ...news.filter((run) => run.stopped === null)];
  const gone = workers.filter((worker) => Math.abs((hidden[worker.name] ?? 0) - worker.since) > 1);
  const count = rows.length + gone.length;
  const unseen = runs.length + workers.length - count;
  if (count === 0 && unseen === 0) return null;
  // What is no longer told is forgotten with the next thing that is hidden.
  const keep = (more: Hidden) => {
    const told = new Set([...runs.map((run) => run.run), ...workers.map((worker) => worker.name)]);
    hide({ ...Object.fromEntries(Object.entries(hidden).filter(([name]) => told.has(name))), ...more });
  };
  const shown = all ? rows : rows.slice(0, Math.max(1, FEW - gone.length));
  return (
    <section className="needs" aria-labelledby="needs-you" data-empty={count === 0} data-tone={rows.some((run) => run.stopped === null) ? "bad" : "warn"}>
      <h2 id="needs-you">
        Needs you <span className="quiet">{count}</span>
      </h2>
      {unseen > 0 && (
        <button type="button" className="button plain small" onClick={() => hide({})}>
          {`Show ${plural(unseen, "hidden entry", "hidden entries")}`}
        </button>
      )}
      {count > 0 && (
        <ul>
          {gone.map((worker) => (
            <Worker key={worker.name} worker={worker} onHide={() => keep({ [worker.name]: worker.since })} />
          ))}
          {shown.map((run) => (
            <Run key={run.run} run={run} onHide={() => keep({ [run.run]: run.version })} />
          ))}
        </ul>
      )}
      {shown.length < rows.length && (
        <button type="button" className="button plain small" onClick={() => setAll(true)}>
          {`Show ${rows.length - shown.length} more`}
        </button>
      )}
      {all && total > runs.length && (
        <a className="small" href={href(["runs"], { status: "failed" })}>
          {`All ${total} failed runs`}
        </a>
      )}
    </section>
  );
}

interface RunProps {
  run: NeedingRun;
  onHide: () => void;
}

function Run({ run, onHide }: RunProps) {
  const [open, setOpen] = useState(false);
  const [wrong, setWrong] = useState("");
  const { stopped } = run;
  const retry = async () => {
    try {
      await send(`runs/${encodeURIComponent(run.run)}/retry`, "POST", { reason: null });
      invalidate((path) => path === "needs");
    } catch (error) {
      setWrong(explain(error));
    }
  };
  return (
    <li>
      <span className="needs-what" data-tone={stopped ? "warn" : "bad"}>
        <StageMark state={stopped ? "gate stopped" : "failed"} />
        {stopped ? "Decide" : "Failed"}
      </span>
      <span className="needs-says">
        <a className="mono" href={href(["runs", run.run])} title={run.run}>
          {run.name}
        </a>{" "}
        <span className="soft">{stopped?.says || run.reason || run.kind}</span>
        {wrong && <span role="alert" className="lost">{` ${wrong}`}</span>}
      </span>
      <span className="needs-end">
        <span className="small quiet">
          <Time at={run.updated_at} />
        </span>
        {stopped && (
          <button type="button" className="button small" onClick={() => setOpen(true)}>
            Override
          </button>
        )}
        {!stopped && (
          <>
            <button type="button" className="button small" onClick={() => void retry()}>
              Retry
            </button>
            <a className="button small" href={href(["new"], { from: run.run })}>
              Again with changes
            </a>
          </>
        )}
        <button type="button" className="button plain small" aria-label={`Hide ${run.name}`} onClick={onHide}>
          Hide
        </button>
      </span>
      {open && stopped && (
        <OverrideDialog run={run.run} gate={{ name: `${stopped.name} ${stopped.gate.replaceAll("_", " ")}`, about: stopped.name, reason: stopped.says }} onClose={() => setOpen(false)} />
      )}
    </li>
  );
}

function Worker({ worker, onHide }: { worker: GoneWorker; onHide: () => void }) {
  return (
    <li>
      <span className="needs-what" data-tone="warn">
        <StageMark state="cancelled" />
        Worker gone
      </span>
      <span className="needs-says">
        <a href="#/queue">{worker.name}</a>{" "}
        <span className="soft">
          {worker.device} does not answer
          {worker.run !== null && (
            <>
              ; it worked on{" "}
              <a className="mono" href={href(["runs", worker.run])} title={worker.run}>
                {worker.run_name ?? worker.run}
              </a>
            </>
          )}
        </span>
      </span>
      <span className="needs-end">
        <span className="small quiet nowrap">{duration(worker.seconds)}</span>
        <button type="button" className="button plain small" aria-label={`Hide ${worker.name}`} onClick={onHide}>
          Hide
        </button>
      </span>
    </li>
  );
}
