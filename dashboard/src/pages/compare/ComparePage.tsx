/** Two runs or more beside each other. */
import { useEffect, useState } from "react";
import { isMerging, type Rows, type RunFacts } from "../../api/types";
import { withQuery } from "../../api/client";
import { useResource, useTitle } from "../../lib/hooks";
import { href, replace, type Route } from "../../lib/router";
import { Icon } from "../../ui/Icon";
import { Empty, Failure } from "../../ui/Messages";
import { runPath } from "../run/context";
import { RunComparison } from "./RunComparison";

/** Runs that are compared at once, at most: as many as there are colours. */
const MOST = 6;

export default function ComparePage({ route }: { route: Route }) {
  const { query } = route;
  const given = [...(query.get("runs") ?? "").split(","), query.get("a") ?? "", query.get("b") ?? ""];
  const names = [...new Set(given.map((name) => name.trim()).filter(Boolean))].slice(0, MOST);
  const put = (next: string[]) => replace(href(["compare"], { runs: next.join(",") }));
  useTitle("Compare");
  return (
    <>
      <header className="page-head">
        <h1>Compare</h1>
      </header>
      <div className="filters">
        {names.map((name) => (
          <span key={name} className="chip">
            <a className="mono" href={href(["runs", name])}>
              {name}
            </a>
            <button type="button" className="button plain icon" aria-label={`Leave ${name} out`} onClick={() => put(names.filter((one) => one !== name))}>
              <Icon name="cross" />
            </button>
          </span>
        ))}
        {names.length < MOST && <Adder names={names} onAdd={(name) => put([...names, name])} />}
      </div>
      {names.length < 2 ? (
        <div className="sheet">
          <Empty title={names.length === 0 ? "Choose two runs or more" : "One more run"}>
            <p>
              Write a run's name above, or choose runs in <a href="#/runs">the list</a> and press Compare.
            </p>
          </Empty>
        </div>
      ) : (
        <Gathered key={names.join()} names={names} />
      )}
    </>
  );
}

function Adder({ names, onAdd }: { names: string[]; onAdd: (name: string) => void }) {
  const [text, setText] = useState("");
  const recent = useResource<Rows>(withQuery("runs", { limit: 50 }));
  return (
    <form
      className="adder"
      onSubmit={(event) => {
        event.preventDefault();
        if (!text.trim()) return;
        onAdd(text.trim());
        setText("");
      }}
    >
      <input className="input mono" list="recent-runs" aria-label="Run to add" placeholder="run" value={text} onChange={(event) => setText(event.target.value)} />
      <datalist id="recent-runs">
        {(recent.data?.runs ?? [])
          .filter((row) => !names.includes(row.run))
          .map((row) => (
            <option key={row.run} value={row.run}>
              {row.status}, {row.owner}
            </option>
          ))}
      </datalist>
      <button type="submit" className="button">
        Add
      </button>
    </form>
  );
}

/** Reads the runs one by one, since how many there are may change. */
function Gathered({ names }: { names: string[] }) {
  const [runs, setRuns] = useState<Record<string, RunFacts>>({});
  const take = (run: RunFacts) => setRuns((known) => (known[run.run] === run ? known : { ...known, [run.run]: run }));
  const found = names.flatMap((name) => Object.values(runs).filter((run) => run.run === name || run.run.startsWith(name)).slice(0, 1));
  const merging = found.filter(isMerging);
  return (
    <>
      {names.map((name) => (
        <Reader key={name} name={name} onRun={take} />
      ))}
      {found.length >= 2 && merging.length >= 2 && <RunComparison runs={merging} />}
      {found.filter((run) => !isMerging(run)).map((run) => (
        <p key={run.run} className="note">
          {run.run} is no merging run ({run.kind}): compare such runs with <code>forge compare</code>.
        </p>
      ))}
    </>
  );
}

function Reader({ name, onRun }: { name: string; onRun: (run: RunFacts) => void }) {
  const answer = useResource<RunFacts>(runPath(name));
  const { data } = answer;
  useEffect(() => {
    if (data) onRun(data);
  });
  return answer.error !== null ? <Failure error={answer.error} onRetry={() => void answer.reload()} /> : null;
}
