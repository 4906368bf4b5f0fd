/** What several runs have, in columns, and their curves over each other. */
import { useState } from "react";
import type { Comparison, Run } from "../../api/types";
import { LineChart } from "../../charts/LineChart";
import { duration, number, score, setting } from "../../lib/format";
import { useResource } from "../../lib/hooks";
import { href } from "../../lib/router";
import { Id } from "../../ui/CopyButton";
import { Loaded } from "../../ui/Messages";
import { Panel } from "../../ui/Panel";
import { StatusMark } from "../../ui/StatusMark";
import { runPath } from "../run/context";

const HUES = ["var(--c-1)", "var(--c-2)", "var(--c-3)", "var(--c-4)", "var(--c-5)", "var(--c-6)"];
const DASHES = [undefined, "9 4", "3 3", "12 3 3 3", "6 2", "1 4"];

type Curve = "champion" | "best" | "mean" | "diversity";
const CURVES: [Curve, string][] = [
  ["champion", "champion, on the selection slice"],
  ["best", "best, on each generation's draw"],
  ["mean", "mean, on each generation's draw"],
  ["diversity", "diversity"],
];

export function RunComparison({ runs }: { runs: Run[] }) {
  const first = runs[0];
  if (!first) return null;
  return (
    <div className="panels">
      <Panel title="Can their scores be compared?" span={12}>
        <ul className="verdicts">
          {runs.slice(1).map((other) => (
            <li key={other.run}>
              <Verdict a={first.run} b={other.run} />
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Curves" span={12}>
        <Curves runs={runs} />
      </Panel>
      <Panel title="Champions" span={12}>
        <Champions runs={runs} />
      </Panel>
      <Panel title="Settings that differ" span={12}>
        <Differences runs={runs} />
      </Panel>
    </div>
  );
}

function Verdict({ a, b }: { a: string; b: string }) {
  const answer = useResource<Comparison>(runPath(a, `/compare/${encodeURIComponent(b)}`));
  return (
    <Loaded of={answer}>
      {(found) => (
        <div className={`note ${found.comparable === null ? "good" : "warn"}`}>
          <span>
            <span className="mono">{a}</span> and <span className="mono">{b}</span>:{" "}
            <strong>{found.comparable === null ? "yes" : "no"}</strong>
            {found.comparable !== null && `, ${found.comparable}`}
            {found.same_lineage === true && "; their lineages are the same, bit for bit"}
            {found.candidates && found.candidates.both > 0 && `; ${found.candidates.both} candidates are in both`}
          </span>
          {found.sources.length > 0 && (
            <span>
              Sources: {found.sources.map((side) => side.join(", ")).join(" against ")}
            </span>
          )}
        </div>
      )}
    </Loaded>
  );
}

function Curves({ runs }: { runs: Run[] }) {
  const [curve, setCurve] = useState<Curve>("champion");
  return (
    <>
      <div className="filters">
        <select className="select" aria-label="Which curve" value={curve} onChange={(event) => setCurve(event.target.value as Curve)}>
          {CURVES.map(([key, label]) => (
            <option key={key} value={key}>
              {label}
            </option>
          ))}
        </select>
      </div>
      <LineChart
        title={`${curve} by generation`}
        description={`${runs.length} runs over each other.`}
        x={{ name: "generation", unit: "", better: null, log: false, whole: true }}
        y={{ name: curve, unit: "", better: null, log: false, whole: false }}
        lines={runs.map((run, index) => ({
          key: run.run,
          label: run.run,
          color: HUES[index] ?? "var(--c-7)",
          dash: DASHES[index],
          step: curve === "champion",
          x: run.generations.map((row) => row.generation),
          y: run.generations.map((row) => row[curve]),
        }))}
        format={score}
        height={300}
      />
    </>
  );
}

function Champions({ runs }: { runs: Run[] }) {
  return (
    <div className="sheet bare" tabIndex={0} role="region" aria-label="Table of champions">
      <table className="table">
        <thead>
          <tr>
            {["Run", "Status", "Strategy", "Champion", "Made by"].map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
            {["Selection", "Test", "Generation", "Evaluations", "Device time"].map((head) => (
              <th key={head} scope="col" className="num">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {runs.map((run, index) => (
            <tr key={run.run}>
              <th scope="row" className="nowrap">
                <i className="swatch" style={{ background: HUES[index] }} aria-hidden="true" />{" "}
                <a className="mono" href={href(["runs", run.run])}>
                  {run.run}
                </a>
              </th>
              <td>
                <StatusMark status={run.status} />
              </td>
              <td className="mono nowrap">{run.strategy ?? "–"}</td>
              <td>{run.champion ? <Id id={run.champion.recipe_id} what="recipe id" /> : "–"}</td>
              <td className="soft">{run.champion?.what ?? "–"}</td>
              <td className="num">{score(run.champion?.score)}</td>
              <td className="num">{score(run.test?.score)}</td>
              <td className="num">{run.generation ?? "–"}</td>
              <td className="num">{number(run.spent.evaluations)}</td>
              <td className="num nowrap">{duration(run.spent.device_seconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Differences({ runs }: { runs: Run[] }) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))].filter(
    (name) => new Set(runs.map((run) => JSON.stringify(run.config[name]))).size > 1,
  );
  if (names.length === 0) return <p className="soft small">None: they have the same settings.</p>;
  return (
    <div className="sheet bare" tabIndex={0} role="region" aria-label="Table of settings">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Setting</th>
            {runs.map((run) => (
              <th key={run.run} scope="col" className="mono">
                {run.run}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {names.map((name) => (
            <tr key={name}>
              <th scope="row" className="mono">
                {name}
              </th>
              {runs.map((run) => (
                <td key={run.run}>{setting(run.config[name])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
