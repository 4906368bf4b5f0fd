/** Stages in a row: how each stands as a mark, a colour and a word, its gate, its figure. */
import type { Stage, Strip } from "../../api/types";
import { duration } from "../../lib/format";
import { href } from "../../lib/router";
import { usePlace } from "../context";
import { valued } from "../words";

const MARKS: Record<Stage["state"], string> = {
  waiting: "○",
  running: "◔",
  paused: "‖",
  ended: "✓",
  reused: "↺",
  "passed unchanged": "⤳",
  "gate stopped": "✗",
  overridden: "!",
  failed: "✗",
  cancelled: "⊘",
};

export function StripPanel({ panel }: { panel: Strip }) {
  return (
    <ol className="strip" aria-label={panel.title}>
      {panel.stages.map((stage) => (
        <Cell key={stage.number} stage={stage} />
      ))}
    </ol>
  );
}

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
    <li className="strip-cell" data-state={stage.state}>
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
      {stage.gate && <span className="small soft">{stage.gate.replaceAll("_", " ")}</span>}
      {stage.figure && (
        <span className="small strip-figure">
          {stage.figure.metric.name.replaceAll("_", " ")} <b>{valued(stage.figure.value, stage.figure.metric.unit)}</b>
          {stage.figure.low !== null && stage.figure.high !== null && (
            <small className="quiet">{` ${valued(stage.figure.low, stage.figure.metric.unit)} … ${valued(stage.figure.high, stage.figure.metric.unit)}`}</small>
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
