/** Stages in a row: how each stands as a mark, a colour and a word, its gate, its figure. */
import type { Stage, Strip } from "../../api/types";
import { duration } from "../../lib/format";
import { href } from "../../lib/router";
import { usePlace } from "../context";
import { between, measured } from "../words";

const MARKS: Record<Stage["state"], string> = {
  waiting: "○",
  running: "◔",
  measuring: "◔",
  paused: "‖",
  ended: "✓",
  reused: "↺",
  "passed unchanged": "⤳",
  "gate stopped": "!",
  overridden: "!",
  failed: "✗",
  cancelled: "⊘",
};

/** Stages that have room in one row of a wide window. */
const MOST = 9;

export function StripPanel({ panel }: { panel: Strip }) {
  return (
    <ol className="strip" aria-label={panel.title} style={{ "--stages": inARow(panel.stages.length) } as React.CSSProperties}>
      {panel.stages.map((stage) => (
        <Cell key={stage.number} stage={stage} />
      ))}
    </ol>
  );
}

/** Stages in a row of a wide window, where rows are as equal as can be. */
function inARow(stages: number): number {
  return Math.max(1, Math.ceil(stages / Math.max(1, Math.ceil(stages / MOST))));
}

/** A line does not end between a number and its sign. */
const whole = (text: string) => text.replaceAll(" %", "\u00a0%");

function Cell({ stage }: { stage: Stage }) {
  const { upto } = usePlace();
  const [first, ...others] = stage.runs;
  const share = stage.inside === null ? null : Math.round(100 * stage.inside);
  const name = (
    <>
      <b className="strip-number">{stage.number}</b> <b>{stage.name}</b>
    </>
  );
  return (
    <li className="strip-cell" data-state={stage.state} data-aside={stage.aside}>
      <span className="strip-name">
        {first ? <a href={href(["runs", first], { upto })}>{name}</a> : name} <span className="quiet small">{stage.what}</span>
      </span>
      <span className="strip-state">
        <span aria-hidden="true">{MARKS[stage.state]}</span> {stage.state}
        {share !== null && ` ${share} %`}
        {stage.left_s !== null && `, ${duration(stage.left_s)} left`}
      </span>
      {share !== null && (
        <span className="strip-bar" aria-hidden="true">
          <i style={{ width: `${share}%` }} />
        </span>
      )}
      {stage.aside && <span className="small soft">no phase is given its model</span>}
      {stage.gate && <span className="small soft">{stage.gate.replaceAll("_", " ")}</span>}
      {stage.figure && (
        <span className="small strip-figure">
          {stage.figure.metric.name} <b>{whole(measured(stage.figure.value, stage.figure.metric.unit))}</b>
          {stage.figure.low !== null && stage.figure.high !== null && (
            <small className="quiet"> {between(stage.figure.low, stage.figure.high, stage.figure.metric.unit).replaceAll(" ", "\u00a0")}</small>
          )}
        </span>
      )}
      {others.map((run) => (
        <a key={run} className="small mono strip-more" href={href(["runs", run], { upto })}>
          {run.slice(run.indexOf(".") + 1)}
        </a>
      ))}
    </li>
  );
}
