/** If the results of runs compare, the results, the settings that differ, and panels of one name. */
import type { SideBySide } from "../../api/types";
import { NONE, number, plural, setting } from "../../lib/format";
import { href } from "../../lib/router";
import { PanelPlaceProvider } from "../../panels/context";
import { drawn, Framed } from "../../panels/PanelGrid";
import { between, look, measured, resultInWords } from "../../panels/words";
import { Panel } from "../../ui/Panel";
import { Coded } from "../../ui/Coded";
import { StatusMark, UNDECIDED } from "../../ui/StatusMark";
import { Sheet } from "../../ui/Sheet";

/** Kinds of panels that need the whole width: tables, and what has many columns. */
const WIDE = new Set(["units", "gates", "strip", "timeline", "matrix", "arms", "graph"]);

export function RunComparison({ data }: { data: SideBySide }) {
  const { heads, judgements, settings, lines, beside, names, undecided } = data;
  const named = (run: string) => names[run] ?? run;
  const inNames = (text: string) => heads.reduce((words, { run }) => words.replaceAll(run, named(run)), text);
  const half = Math.max(4, Math.floor(12 / heads.length));
  return (
    <div className="panels">
      <Panel title="Can their results be compared?" span={12}>
        <ul className="verdicts">
          {judgements.map(({ run, other, why_not, same_lineage }) => (
            <li key={other} className={`note ${why_not === null ? "good" : "warn"}`}>
              <span>
                <span className="mono">{named(run)}</span> and <span className="mono">{named(other)}</span>: <strong>{why_not === null ? "yes" : "no"}</strong>
                {why_not !== null && `, ${inNames(why_not)}`}
                {same_lineage && "; their lineages are the same, bit for bit"}
              </span>
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Results" span={12}>
        <Results heads={heads} named={named} undecided={undecided} />
      </Panel>
      {lines.map((panel, index) => (
        <Panel key={panel.name} title={panel.title} note={panel.says} span={index === lines.length - 1 && index % 2 === 0 ? 12 : 6}>
          {drawn({ ...panel, series: panel.series.map((line) => ({ ...line, name: named(line.name) })) })}
        </Panel>
      ))}
      <Panel title="Settings that differ" span={12}>
        <Differences settings={settings} heads={heads} named={named} />
      </Panel>
      {beside.flatMap(({ name, panels }) =>
        panels.map(({ run, panel }) => (
          <PanelPlaceProvider key={`${name} ${run}`} value={{ run, at: null, upto: null, pick: null, mayAct: false }}>
            <Framed panel={{ ...panel, title: `${panel.title}, ${named(run)}` }} span={WIDE.has(panel.kind) ? 12 : half} />
          </PanelPlaceProvider>
        )),
      )}
    </div>
  );
}

interface ResultsProps {
  heads: SideBySide["heads"];
  named: (run: string) => string;
  undecided: SideBySide["undecided"];
}

function Results({ heads, named, undecided }: ResultsProps) {
  const facts = [...new Set(heads.flatMap((head) => head.facts.map((fact) => fact.name)))];
  const rows: [string, (head: SideBySide["heads"][number]) => React.ReactNode][] = [
    ["kind", (head) => head.kind],
    ["status", (head) => <StatusMark status={undecided.includes(head.run) ? UNDECIDED : head.status} />],
    ["result", ({ result }) => (result ? <b>{resultInWords({ ...result.metric, metric: result.metric.name, value: result.value })}</b> : NONE)],
    ["95 % interval", ({ result }) => (result && result.low !== null && result.high !== null ? between(result.low, result.high, result.metric.unit) : NONE)],
    ["measured on", ({ result }) => (result?.on ? `${result.on}${result.n === null ? "" : `, ${number(result.n)} ${result.items}`}` : NONE)],
    ["done", (head) => `${number(head.done)}${head.of === null ? "" : ` of ${number(head.of)}`} ${head.unit}s`],
    ...facts.map((name): [string, (head: SideBySide["heads"][number]) => React.ReactNode] => [
      name,
      (head) => {
        const fact = head.facts.find((one) => one.name === name);
        return fact ? <Coded text={measured(fact.value, fact.unit)} /> : NONE;
      },
    ]),
  ];
  return (
    <Sheet label="Table of results" look="bare">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Run</th>
            {heads.map((head, index) => (
              <th key={head.run} scope="col">
                <i className="swatch" style={{ background: look(index).color }} aria-hidden="true" />{" "}
                <a className="mono" href={href(["runs", head.run])}>
                  {named(head.run)}
                </a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, cell]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {heads.map((head) => (
                <td key={head.run}>{cell(head)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}

interface DifferencesProps {
  settings: SideBySide["settings"];
  heads: SideBySide["heads"];
  named: (run: string) => string;
}

/** Settings that only one kind of run has stand behind the others, folded. */
function Differences({ settings, heads, named }: DifferencesProps) {
  const runs = heads.map((head) => named(head.run));
  const kinds = new Set(heads.map((head) => head.kind));
  const shared = settings.filter(({ values }) => kinds.size === 1 || values.every((value) => value !== null));
  const others = settings.filter((row) => !shared.includes(row));
  return (
    <>
      {shared.length === 0 && <p className="soft small">None of those that are set in all of them.</p>}
      {shared.length > 0 && <SettingsTable settings={shared} runs={runs} />}
      {others.length > 0 && (
        <details>
          <summary className="small">{`${plural(others.length, "setting")} that not all of them have`}</summary>
          <SettingsTable settings={others} runs={runs} />
        </details>
      )}
    </>
  );
}

function SettingsTable({ settings, runs }: { settings: SideBySide["settings"]; runs: string[] }) {
  return (
    <Sheet label="Table of settings" look="bare">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Setting</th>
            {runs.map((run) => (
              <th key={run} scope="col" className="mono">
                {run}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {settings.map(({ name, values }) => (
            <tr key={name}>
              <th scope="row" className="mono">
                {name}
              </th>
              {values.map((value, index) => (
                <td key={runs[index]}>{setting(value)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}
