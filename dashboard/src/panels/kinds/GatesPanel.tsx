/** Measures against their limits, and the verdicts on which it depends how a run goes on. */
import { useState } from "react";
import type { Gate, Gates } from "../../api/types";
import { NONE } from "../../lib/format";
import { usePlace } from "../context";
import { directed, named, valued } from "../words";
import { OverrideDialog } from "./OverrideDialog";

const VERDICTS: Record<Gate["verdict"], { mark: string; tone: string }> = {
  open: { mark: "○", tone: "quiet" },
  pass: { mark: "✓", tone: "beaten" },
  "pass unchanged": { mark: "⤳", tone: "soft" },
  stop: { mark: "✗", tone: "lost" },
  overridden: { mark: "!", tone: "overridden" },
};

export function GatesPanel({ panel }: { panel: Gates }) {
  const { run, mayAct } = usePlace();
  const [open, setOpen] = useState<Gate>();
  return (
    <div className="sheet bare" tabIndex={0} role="region" aria-label={`Table: ${panel.title}`}>
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Gate</th>
            <th scope="col">Measure</th>
            <th scope="col" className="num">Value</th>
            <th scope="col" className="num">Baseline</th>
            <th scope="col" className="num">Limit</th>
            <th scope="col">Verdict</th>
          </tr>
        </thead>
        <tbody>
          {panel.gates.map((gate) => (
            <tr key={gate.name}>
              <th scope="row">{gate.name}</th>
              <td className="soft" title={directed(gate.metric)}>{named(gate.metric)}</td>
              <td className="num nowrap">
                <b>{valued(gate.value, gate.metric.unit)}</b>
                {gate.low !== null && gate.high !== null && <small className="quiet">{` ${valued(gate.low, gate.metric.unit)} … ${valued(gate.high, gate.metric.unit)}`}</small>}
              </td>
              <td className="num">{valued(gate.baseline, gate.metric.unit)}</td>
              <td className="num nowrap">{gate.limit === null ? NONE : `${gate.metric.better ? (gate.metric.better === "up" ? "≥ " : "≤ ") : ""}${valued(gate.limit, gate.metric.unit)}`}</td>
              <td>
                <span className={VERDICTS[gate.verdict].tone}>
                  <span aria-hidden="true">{VERDICTS[gate.verdict].mark}</span> {gate.verdict}
                </span>
                {gate.by && <span className="quiet">{` by ${gate.by}`}</span>}
                {gate.reason && <span className="quiet">{`: ${gate.reason}`}</span>}
                {gate.about && mayAct && (
                  <>
                    {" "}
                    <button type="button" className="button small" onClick={() => setOpen(gate)}>
                      Override
                    </button>
                  </>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {open && <OverrideDialog run={run} gate={open} onClose={() => setOpen(undefined)} />}
    </div>
  );
}
