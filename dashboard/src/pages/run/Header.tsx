/** The head of a run's page: what it is, how it stands, what may be done with it. */
import { type Action, type Headline as Score, isMerging, type Run } from "../../api/types";
import { duration, NONE, number, plural, score, signed } from "../../lib/format";
import { useMaySubmit, useOwns } from "../../lib/currentUser";
import { href } from "../../lib/router";
import { usePlace } from "../../panels/context";
import { Fact, Headline } from "../../panels/Headline";
import { Icon, type IconName } from "../../ui/Icon";
import { StatusMark } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";
import { Id } from "../../ui/CopyButton";
import { useRun } from "./context";
import { Now } from "./Now";
import { useClock, useHead } from "./useHead";

const ACTIONS: Record<Action, { label: string; icon: IconName }> = {
  pause: { label: "Pause", icon: "pause" },
  resume: { label: "Resume", icon: "play" },
  retry: { label: "Retry", icon: "retry" },
  priority: { label: "Priority", icon: "priority" },
  fork: { label: "Fork", icon: "fork" },
  export: { label: "Export", icon: "export" },
  cancel: { label: "Cancel", icon: "cross" },
};

export function Header({ onAction }: { onAction: (action: Action) => void }) {
  const { live, shown, at, overview, open } = useRun();
  const { upto } = usePlace();
  const maySubmit = useMaySubmit();
  const own = useOwns()(live.owner);
  const head = useHead(live, at);
  const clock = useClock(head);
  const allowed = (Object.keys(ACTIONS) as Action[]).filter(
    (action) => shown.allowed.includes(action) && !(action === "fork" && shown.status === "submitted") && (own || (maySubmit && action === "fork")),
  );
  const past = live.forked_from;
  return (
    <header className="run-head">
      <div className="run-title">
        <h1 className="mono">{live.run}</h1>
        <StatusMark status={shown.status} />
        {at !== null && (
          <span className="tag past">
            {live.delegates && upto !== null ? `as it was at position ${upto.toLocaleString("en-US")} of the log` : `as it was at event ${shown.place.toLocaleString("en-US")}`}
          </span>
        )}
        {live.labels.map((label) => (
          <a key={label} className="tag" href={href(["runs"], { label })}>
            {label}
          </a>
        ))}
        <div className="buttons">
          {maySubmit && (
            <a className="button" href={href(["new"], { from: live.run })}>
              <Icon name="copy" />
              Again with changes
            </a>
          )}
          {allowed.map((action) => (
            <button key={action} type="button" className={`button ${action === "cancel" ? "danger" : ""}`} onClick={() => onAction(action)}>
              <Icon name={ACTIONS[action].icon} />
              {ACTIONS[action].label}
            </button>
          ))}
        </div>
      </div>
      <p className="run-line">
        <span>
          {live.owner || "no owner"}, <Time at={live.submitted_at} />
        </span>
        {isMerging(live) && isMerging(shown) ? (
          <>
            <span className="mono">{shown.strategy ?? NONE}</span>
            <span>
              {live.sources.map((source) => source.name).join(" + ")}
              {live.base ? ` on ${live.base.name}` : ", no base"}
            </span>
          </>
        ) : (
          <span className="mono">{live.kind}</span>
        )}
        {live.priority !== 0 && <span>priority {live.priority}</span>}
        {past && (
          <span>
            forked from{" "}
            <a className="mono" href={href(["runs", past.run], { at: past.place })}>
              {past.run}
            </a>
            {` at event ${past.place.toLocaleString("en-US")}`}
          </span>
        )}
      </p>
      {isMerging(shown) ? (
        <MergingHeadline run={shown} elapsed={clock} onOpen={open} />
      ) : (
        overview.shown.data && <Headline head={overview.shown.data.head} />
      )}
      {head && <Now run={live} head={head} />}
      {isMerging(shown) && shown.verdict && <p className="verdict">{shown.verdict.sentence}</p>}
      {shown.status === "failed" && <p className="note bad">{shown.reason ? `Failed: ${shown.reason}` : "Failed."}</p>}
      {shown.status === "cancelled" && <p className="note">{shown.reason ? `Cancelled: ${shown.reason}` : "Cancelled."}</p>}
      {at !== null && isMerging(shown) && shown.search_ended && shown.status === "running" && (
        <p className="note">The search has ended: {shown.search_ended}. The test comes next.</p>
      )}
      {shown.warnings.length > 0 && (
        <div className="note warn">
          {shown.warnings.map((warning) => (
            <span key={warning}>{warning}</span>
          ))}
        </div>
      )}
    </header>
  );
}

/** The champion, and how far the search is. */
function MergingHeadline({ run, elapsed, onOpen }: { run: Run; elapsed: number | null; onOpen: (candidate: string) => void }) {
  const { champion, headline } = run;
  return (
    <dl className="headline">
      <div className="headline-champion">
        <dt>
          <i className="diamond" aria-hidden="true" /> Champion
          {headline && `, ${headline.slice === "test" ? "test" : "selection"} score`}
        </dt>
        <dd>
          <b>{score(headline?.score)}</b>
          {champion ? (
            <span>
              <button type="button" className="link" onClick={() => onOpen(champion.recipe_id)}>
                {champion.name || champion.what}
              </button>
              <span className="quiet">
                <Id id={champion.recipe_id} what="recipe id" /> since generation {champion.since}
              </span>
            </span>
          ) : (
            <span className="quiet">none yet: the first comes at the end of generation 0</span>
          )}
          {headline && <Explained headline={headline} />}
        </dd>
      </div>
      <Fact name="Generation" value={run.generation === null || run.status === "submitted" ? NONE : String(run.generation)}
        more={run.generations_wanted === null ? "" : `of ${number(run.generations_wanted)}`} />
      <Fact name="Diversity" value={number(run.diversity)} more={run.level ?? ""} />
      <Fact name="Evaluations" value={number(run.spent.evaluations)} more={`${number(run.spent.items)} items`} />
      <Fact name="Device time" value={duration(run.spent.device_seconds)} more={`${duration(elapsed ?? run.spent.wall_seconds)} elapsed`} />
    </dl>
  );
}

/** On which items the score stands, and how sure the lead is. */
function Explained({ headline }: { headline: Score }) {
  const { slice, unit, items, over, lead, low, high } = headline;
  const stands = `${unit}; on the ${slice} slice${items === null ? "" : `, ${plural(items, "item")}`}`;
  return (
    <span className="headline-why quiet">
      <span>{stands}</span>
      {over !== null && lead !== null && (
        <span>
          {signed(lead)} over {over}
          {low !== null && high !== null && `, 95 % interval ${signed(low)} … ${signed(high)}`}
        </span>
      )}
      {slice === "selection" && <span>the champion was chosen by this score; the test at the end is the honest one</span>}
    </span>
  );
}
