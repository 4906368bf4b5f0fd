/** What a living run does: the task in words, the share done, the time left. Not of the log, so not in the past, and marked so. */
import { type Activity, isMerging, type RunFacts } from "../../api/types";
import { duration, number } from "../../lib/format";
import { CopyButton } from "../../ui/CopyButton";

export function Now({ run, head }: { run: RunFacts; head: Activity }) {
  const inside = head.part ? head.part.inside : head.inside;
  const share = inside === null || head.status === "submitted" ? null : Math.round(100 * inside);
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
      {head.helps && (
        <p className="small">
          This helps: <code>{head.helps}</code> <CopyButton text={head.helps} label="Copy the command" />
        </p>
      )}
      <p className="quiet small">{[...parts(run, head), "from the workers, not from the log"].join(" · ")}</p>
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

function parts(run: RunFacts, head: Activity): string[] {
  if (!run.delegates) return [head.progress];
  const inside = head.part?.progress ? [`${head.part.name}: ${head.part.progress}`] : [];
  return [...inside, `${number(head.done)} of ${number(head.of)} ${head.unit} have ended`];
}
