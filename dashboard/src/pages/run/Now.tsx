/** What a living run does: the task in words, the share done, the time left. Not of the log, so not in the past, and marked so. */
import { type Activity, isMerging, type RunFacts } from "../../api/types";
import { duration, plural } from "../../lib/format";

export function Now({ run, head }: { run: RunFacts; head: Activity }) {
  const share = head.inside === null || head.status === "submitted" ? null : Math.round(100 * head.inside);
  return (
    <section className="now" aria-label="Now">
      <p className="now-doing">
        <b>{told(run, head)}</b>
        {head.at_work.slice(0, 3).map((one) => (
          <span key={one.who} className="quiet">
            {one.who}
            {one.seconds !== null && `, ${duration(Math.max(1, Math.round(one.seconds)))}`}
          </span>
        ))}
      </p>
      {share !== null && (
        <div className="now-bar" role="progressbar" aria-label="Time that the work takes" aria-valuemin={0} aria-valuemax={100} aria-valuenow={share}>
          <i style={{ width: `${share}%` }} />
        </div>
      )}
      <p className="quiet small">{[...parts(head, share), "from the workers, not from the log"].join(" · ")}</p>
      {isMerging(run) && run.search_ended && (
        <p className="small">The search has ended: {run.search_ended}. The champion is now measured on the test slice.</p>
      )}
    </section>
  );
}

function told(run: RunFacts, head: Activity): string {
  if (head.doing) return head.doing.charAt(0).toUpperCase() + head.doing.slice(1);
  if (head.waits_for) return `Waiting for ${head.waits_for}`;
  return run.status === "paused" ? "Paused" : "Between two tasks";
}

function parts(head: Activity, share: number | null): string[] {
  const found = share === null ? [] : [`${share} % of the time`];
  if (head.of !== null) found.push(`${head.done.toLocaleString("en-US")} of at most ${plural(head.of, head.unit.replace(/s$/, ""))} (${Math.floor((100 * head.done) / Math.max(1, head.of))} %)`);
  else if (head.status === "running") found.push(`${head.done.toLocaleString("en-US")} ${head.unit} done`);
  if (head.eta_s !== null) found.push(`${duration(Math.max(1, Math.round(head.eta_s)))} left at most`);
  return found;
}
