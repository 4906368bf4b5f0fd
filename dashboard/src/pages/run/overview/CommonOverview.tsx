/** How a run goes whose kind has no page of its own: its panels, and what all runs have. */
import { PanelGrid } from "../../../panels/PanelGrid";
import { Id } from "../../../ui/CopyButton";
import { Loaded } from "../../../ui/Messages";
import { Panel } from "../../../ui/Panel";
import { useRun } from "../context";
import { CommonFacts, Pair } from "./RunFacts";

export function CommonOverview() {
  const { live, shown, overview } = useRun();
  return (
    <div className="panels">
      <Loaded of={overview.shown}>
        {({ panels }) => <PanelGrid panels={panels.filter((panel) => panel.kind !== "graph")} newest={overview.newest?.panels} />}
      </Loaded>
      <Panel title="Run" span={12}>
        <dl className="facts">
          <Pair name="kind" value={live.kind} />
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
