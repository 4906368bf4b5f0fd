/** Measures against their limits, and the verdicts on which it depends how a run goes on. */
import { useState } from "react";
import type { Gate, Gates } from "../../api/types";
import { NONE } from "../../lib/format";
import { usePlace } from "../context";
import { between, directed, limited, measured } from "../words";
import { OverrideDialog } from "./OverrideDialog";
import { Sheet } from "../../ui/Sheet";

const VERDICTS: Record<Gate["verdict"], { mark: string; tone: string; word: string }> = {
  open: { mark: "○", tone: "quiet", word: "not reached yet" },
  pass: { mark: "✓", tone: "beaten", word: "passed" },
  "pass unchanged": { mark: "⤳", tone: "soft", word: "not met: the input goes on unchanged" },
  stop: { mark: "!", tone: "overridden", word: "not met: needs a decision" },
  overridden: { mark: "!", tone: "overridden", word: "overridden" },
};

export function GatesPanel({ panel }: { panel: Gates }) {
  const { run, mayAct } = usePlace();
  const [open, setOpen] = useState<Gate>();
  return (
    <Sheet label={`Table: ${panel.title}`} look="bare gates">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">{panel.gates.some((gate) => gate.group) ? "Phase" : "Gate"}</th>
            <th scope="col">Measure</th>
            <th scope="col" className="num">Value</th>
            <th scope="col" className="num">Baseline</th>
            <th scope="col" className="num">Limit</th>
            <th scope="col">Verdict</th>
          </tr>
        </thead>
        <tbody>
          {panel.gates.map((gate, index) => (
            <tr key={gate.name}>
              <th scope="row">
                <span className={gate.group && gate.group === panel.gates[index - 1]?.group ? "hidden-text" : undefined}>{gate.group || gate.name}</span>
              </th>
              <td className="soft" title={directed(gate.metric)}>{gate.metric.name}</td>
              <td className="num nowrap">
                <b>{measured(gate.value, gate.metric.unit)}</b>
                {gate.low !== null && gate.high !== null && <small className="quiet">{` ${between(gate.low, gate.high, gate.metric.unit)}`}</small>}
              </td>
              <td className="num nowrap">{measured(gate.baseline, gate.metric.unit)}</td>
              <td className="num nowrap">{gate.limit === null ? NONE : `${gate.metric.better ? (gate.metric.better === "up" ? "≥ " : "≤ ") : ""}${limited(gate.limit, gate.metric.unit)}`}</td>
              <td>
                <span className={VERDICTS[gate.verdict].tone}>
                  <span aria-hidden="true">{VERDICTS[gate.verdict].mark}</span> {VERDICTS[gate.verdict].word}
                </span>
                {gate.by && <span className="quiet">{` by ${gate.by}`}</span>}
                {gate.by && gate.reason && <span className="quiet">{`: ${gate.reason}`}</span>}
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
    </Sheet>
  );
}
