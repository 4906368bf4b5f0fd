/** The head of a run's page: what it is, how it stands, what may be done with it. */
import { useState } from "react";
import { type Action, type Decision, type Headline as Score, isMerging, type Run, type RunFacts } from "../../api/types";
import { duration, NONE, number, plural, score, signed } from "../../lib/format";
import { useMaySubmit, useOwns } from "../../lib/currentUser";
import { href } from "../../lib/router";
import { usePlace } from "../../panels/context";
import { Fact, Headline } from "../../panels/Headline";
import { OverrideDialog } from "../../panels/kinds/OverrideDialog";
import { Icon, type IconName } from "../../ui/Icon";
import { StatusMark, UNDECIDED } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";
import { Id } from "../../ui/CopyButton";
import { useRun } from "./context";
import { Coded } from "../../ui/Coded";
import { Now } from "./Now";
import { Trust } from "./Trust";
import { ReportMenu } from "./ReportMenu";
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

export function Header({ onAction, onDescribe }: { onAction: (action: Action) => void; onDescribe: () => void }) {
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
        <h1 className="mono">{live.name}</h1>
        {own && (
          <button type="button" className="button plain small" onClick={onDescribe} aria-label="Change name, note and tags">
            <Icon name="pencil" />
          </button>
        )}
        <StatusMark status={shown.decision ? UNDECIDED : shown.status} />
        {at !== null && (
          <span className="tag past">
            {live.delegates && upto !== null ? `as it was at position ${upto.toLocaleString("en-US")} of the log` : `as it was at event ${shown.place.toLocaleString("en-US")}`}
          </span>
        )}
        {live.tags.map((tag) => (
          <a key={tag} className="tag" href={href(["runs"], { tag })}>
            {tag}
          </a>
        ))}
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
          <ReportMenu run={live.run} name={live.name} />
          {allowed.filter((action) => !shown.decision || !DECIDING.includes(action)).map((action) => (
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
        {live.name !== live.run && (
          <span>
            id <Id id={live.run} whole what="run id" />
          </span>
        )}
        {live.key !== null && <span>key {live.key}</span>}
        {live.priority !== 0 && <span>priority {live.priority}</span>}
        {!isMerging(shown) && <Models of={shown} />}
        {past && (
          <span>
            forked from{" "}
            <a className="mono" href={href(["runs", past.run], { at: past.place })} title={past.run}>
              {past.run_name}
            </a>
            {` at event ${past.place.toLocaleString("en-US")}`}
          </span>
        )}
      </p>
      {live.note && <p className="soft">{live.note}</p>}
      {isMerging(shown) ? (
        <MergingHeadline run={shown} elapsed={clock} onOpen={open} />
      ) : (
        overview.shown.data && <Headline head={overview.shown.data.head} />
      )}
      {head && <Now run={live} head={head} />}
      {isMerging(shown) && shown.verdict && (
        <p className="verdict">
          {shown.verdict.sentence}{" "}
          {shown.verdict.loses_to_best_baseline && allowed.includes("export") && (
            <button type="button" className="button small" onClick={() => onAction("export")}>
              Export {shown.verdict.best_baseline}
            </button>
          )}
        </p>
      )}
      {at === null && <Trust />}
      {shown.decision && <Undecided run={live.run} decision={shown.decision} allowed={at === null ? allowed : []} onAction={onAction} />}
      {shown.status === "failed" && !shown.decision && <p className="note bad"><Coded text={shown.reason ? `Failed: ${shown.reason}` : "Failed."} /></p>}
      {shown.status === "cancelled" && <p className="note">{shown.reason ? `Cancelled: ${shown.reason}` : "Cancelled."}</p>}
      {at !== null && isMerging(shown) && shown.search_ended && shown.status === "running" && (
        <p className="note">The search has ended: {shown.search_ended}. The test comes next.</p>
      )}
      {shown.warnings.length > 0 && (
        <div className="note warn">
          {shown.warnings.map((warning) => (
            <span key={warning} className="sentence"><Coded text={warning} /></span>
          ))}
        </div>
      )}
    </header>
  );
}

/** The models that a run gave, each with a link to its page. */
function Models({ of }: { of: RunFacts }) {
  const given = Object.entries(of.results);
  if (given.length === 0) return null;
  return (
    <span className="quiet">
      files and download:{" "}
      {given.map(([role, id], place) => (
        <span key={role}>
          {place > 0 && ", "}
          <a href={href(["models", id])}>{role || "model"}</a>
        </span>
      ))}
    </span>
  );
}

/** What a user asks of a run that waits for a decision, beside the sentence and not above it. */
const DECIDING: readonly Action[] = ["fork", "cancel"];

interface UndecidedProps {
  run: string;
  decision: Decision;
  allowed: readonly Action[];
  onAction: (action: Action) => void;
}

/** A gate has stopped the run: why, and the three ways on. */
function Undecided({ run, decision, allowed, onAction }: UndecidedProps) {
  const [overriding, setOverriding] = useState(false);
  return (
    <div className="note warn decision">
      <span>{decision.says}</span>
      <span className="decision-ways">
        {allowed.includes("cancel") && (
          <button type="button" className="button" onClick={() => setOverriding(true)}>
            Override
          </button>
        )}
        {allowed.includes("fork") && (
          <button type="button" className="button" onClick={() => onAction("fork")}>
            Fork
          </button>
        )}
        {allowed.includes("cancel") && (
          <button type="button" className="button danger" onClick={() => onAction("cancel")}>
            Give up
          </button>
        )}
      </span>
      {overriding && <OverrideDialog run={run} gate={{ name: `the gate of ${decision.about}`, about: decision.about, reason: decision.says }} onClose={() => setOverriding(false)} />}
    </div>
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
              <Models of={run} />
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
