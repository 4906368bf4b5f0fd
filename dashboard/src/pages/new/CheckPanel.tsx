/** What the server says of a run before it is submitted. Nothing here is guessed. */
import { useEffect, useState } from "react";
import type { Checked, Values } from "../../api/types";
import { number, setting } from "../../lib/format";
import { Failure } from "../../ui/Messages";
import type { CheckState } from "./useCheck";

const CANNOT = "This cannot be submitted yet.";

interface Props {
  begun: boolean;
  /** What must be named before there is anything to check. */
  needs: string;
  /** The settings are given as a file. */
  file: boolean;
  blocked: boolean;
  checked: CheckState;
  config: Values;
}

export function CheckPanel({ begun, needs, file, blocked, checked, config }: Props) {
  const { answer, error, busy, since, waits } = checked;
  return (
    <div className="check-panel" aria-live="polite" aria-busy={busy}>
      <h2>Check</h2>
      {!begun && <p className="soft small">{needs}: the server checks as you type. Nothing is started.</p>}
      {begun && blocked && <p className="soft small">Fix the marked fields first.</p>}
      {begun && !blocked && busy && <Waiting since={since} waits={waits} />}
      {error !== null && <Failure error={error} refused={CANNOT} />}
      {answer && (
        <div className={busy ? "stale" : undefined}>
          <Said answer={answer} config={config} file={file} />
        </div>
      )}
    </div>
  );
}

/** How long a check takes by now, and what for. The seconds are not read aloud. */
function Waiting({ since, waits }: { since: number | null; waits: string }) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, []);
  const seconds = since === null ? 0 : Math.max(0, Math.round((now - since) / 1000));
  return (
    <div className="note checking">
      <strong>
        Checking …{" "}
        <span className="quiet" aria-hidden="true">
          {seconds > 0 ? `${seconds} s` : ""}
        </span>
      </strong>
      {waits !== "" && <span>{waits.replace(/ Ask again\.$/, "")}</span>}
      {waits !== "" && <span className="soft small">This page asks again by itself.</span>}
      {waits === "" && seconds > 2 && <span>The server looks up the models and data, and opens them.</span>}
    </div>
  );
}

/** The phases that the server has read from the file. */
function Phases({ given }: { given: unknown }) {
  const phases = (Array.isArray(given) ? given : []) as { name: string; kind: string; gates: { metric: string }[] }[];
  return phases.map(({ name, kind, gates }, index) => (
    <div key={name} className="fact-pair">
      <dt>{`${index + 1} ${name}`}</dt>
      <dd>
        {kind}
        {gates.length > 0 && <span className="quiet">{`, gates: ${gates.map((gate) => gate.metric.replaceAll("_", " ")).join(", ")}`}</span>}
      </dd>
    </div>
  ));
}

function Said({ answer, config, file }: { answer: Checked; config: Values; file: boolean }) {
  const slices = [...new Set(Object.values(answer.items ?? {}).flatMap((row) => Object.keys(row)))];
  // With a budget and no generations of its own, a run has as many as there is time for.
  const open = !("generations" in config) && typeof answer.config.budget_hours === "number";
  const counted = [open ? "budget_hours" : "generations", "population_size", "strategy"].filter((name) => name in answer.config || name in config);
  return (
    <div className="said">
      <p className={`note ${answer.ok ? "good" : "bad"}`}>
        <strong>{answer.ok ? "This can be submitted." : CANNOT}</strong>
      </p>
      {answer.warnings.map((warning) => (
        <p key={warning} className="note warn">
          <span className="sentence">{warning}</span>
        </p>
      ))}
      <dl className="facts">
        {file ? <Phases given={answer.config.phases} /> : (
          <>
            <dt>parameters</dt>
            <dd>{number(answer.parameters)}</dd>
          </>
        )}
        {counted.map((name) => (
          <div key={name} className="fact-pair">
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd>{setting(answer.config[name] ?? config[name])}</dd>
          </div>
        ))}
      </dl>
      {answer.items && slices.length > 0 && (
        <div className="sheet" tabIndex={0} role="region" aria-label="Items">
          <table className="table">
            <caption className="hidden-text">Items by domain and slice</caption>
            <thead>
              <tr>
                <th scope="col">Items</th>
                {slices.map((slice) => (
                  <th key={slice} scope="col" className="num">
                    {slice}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {Object.entries(answer.items).map(([domain, row]) => (
                <tr key={domain}>
                  <th scope="row">{domain}</th>
                  {slices.map((slice) => (
                    <td key={slice} className="num">
                      {number(row[slice])}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}
