/** The head of a run's page: what it is, how it stands, what may be done with it. */
import type { Action } from "../../api/types";
import { duration, NONE, number, score } from "../../lib/format";
import { useMaySubmit, useMe } from "../../lib/me";
import { href } from "../../lib/router";
import { Icon, type IconName } from "../../ui/Icon";
import { StatusMark } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";
import { Id } from "../../ui/Copy";
import { useRun } from "./context";

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
  const { live, shown, at, open } = useRun();
  const me = useMe();
  const maySubmit = useMaySubmit();
  const own = me?.role === "admin" || (maySubmit && me?.name === live.owner);
  const allowed = (Object.keys(ACTIONS) as Action[]).filter(
    (action) => live.allowed.includes(action) && (own || (maySubmit && action === "fork")),
  );
  const { champion } = shown;
  const past = live.forked_from;
  return (
    <header className="run-head">
      <div className="run-title">
        <h1 className="mono">{live.run}</h1>
        <StatusMark status={shown.status} />
        {at !== null && <span className="tag past">as it was at event {shown.place.toLocaleString("en-US")}</span>}
        {live.labels.map((label) => (
          <a key={label} className="tag" href={href(["runs"], { label })}>
            {label}
          </a>
        ))}
        <div className="buttons">
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
          {live.owner || "nobody"}, <Time at={live.submitted_at} />
        </span>
        <span className="mono">{shown.strategy ?? NONE}</span>
        <span>
          {live.sources.map((source) => source.name).join(" + ")}
          {live.base ? ` on ${live.base.name}` : ", no base"}
        </span>
        {live.priority !== 0 && <span>priority {live.priority}</span>}
        {past && (
          <span>
            forked from{" "}
            <a className="mono" href={href(["runs", past.run], { at: past.place ?? past.version })}>
              {past.run}
            </a>
            {past.place ? ` at event ${past.place}` : ""}
          </span>
        )}
      </p>
      <dl className="headline">
        <div className="headline-champion">
          <dt>
            <i className="diamond" aria-hidden="true" /> Champion
          </dt>
          <dd>
            <b>{score(champion?.score)}</b>
            {champion ? (
              <span>
                <button type="button" className="link" onClick={() => open(champion.recipe_id)}>
                  {champion.name || champion.what}
                </button>
                <span className="quiet">
                  <Id id={champion.recipe_id} what="recipe id" /> since generation {champion.since}
                </span>
              </span>
            ) : (
              <span className="quiet">none yet: the first comes at the end of generation 0</span>
            )}
          </dd>
        </div>
        <Fact name="Generation" value={shown.generation === null ? NONE : String(shown.generation)}
          more={shown.generations_wanted === null ? "" : `of ${number(shown.generations_wanted)}`} />
        <Fact name="Diversity" value={shown.diversity === null ? NONE : shown.diversity.toFixed(2)} more={shown.level ?? ""} />
        <Fact name="Evaluations" value={number(shown.spent.evaluations)} more={`${number(shown.spent.items)} items`} />
        <Fact name="Device time" value={duration(shown.spent.device_seconds)} more={`${duration(shown.spent.wall_seconds)} by the clock`} />
      </dl>
      {shown.verdict && <p className="verdict">{shown.verdict.sentence}</p>}
      {shown.reason && shown.status !== "completed" && <p className="note bad">{shown.reason}</p>}
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

function Fact({ name, value, more }: { name: string; value: string; more: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <b>{value}</b>
        <span className="quiet">{more}</span>
      </dd>
    </div>
  );
}
