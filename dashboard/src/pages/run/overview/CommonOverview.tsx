/** How a run goes whose kind has no page of its own: what all runs have. */
import { number } from "../../../lib/format";
import { Id } from "../../../ui/CopyButton";
import { Panel } from "../../../ui/Panel";
import { useRun } from "../context";
import { CommonFacts, Pair } from "./RunFacts";

export function CommonOverview() {
  const { live, shown } = useRun();
  const { done, of, unit } = shown.progress;
  return (
    <div className="panels">
      <Panel title="Run" span={12}>
        <dl className="facts">
          <Pair name="kind" value={live.kind} />
          <Pair name={`${unit}s`} value={`${number(done)}${of === null ? "" : ` of ${number(of)}`}`} />
          <Pair name="device" value={shown.device ?? "–"} />
          <CommonFacts />
          {shown.lineage_digest && (
            <div className="fact-pair">
              <dt>lineage digest</dt>
              <dd>
                <Id id={shown.lineage_digest} what="lineage digest" />
              </dd>
            </div>
          )}
        </dl>
      </Panel>
    </div>
  );
}
