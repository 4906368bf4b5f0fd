/** How a search goes: the run's panels, and what no panel can say of genes and techniques. */
import type { Run } from "../../../api/types";
import { Framed, PanelGrid } from "../../../panels/PanelGrid";
import { Id } from "../../../ui/CopyButton";
import { Empty, Failure } from "../../../ui/Messages";
import { Panel } from "../../../ui/Panel";
import { useMerging } from "../context";
import { GeneCorrelations } from "./GeneCorrelations";
import { ParallelPanel } from "./ParallelPanel";
import { RunFacts } from "./RunFacts";
import { Techniques } from "./Techniques";

/** Panels beside the facts of the run; the others follow beneath, as the kind orders them. */
const FIRST = ["champion-score", "scores"];

export function Overview() {
  const { live, shown, at, overview } = useMerging();
  const begun = shown.generations.length > 0;
  const { data, error, reload } = overview.shown;
  const panels = (data?.panels ?? []).filter((panel) => panel.kind !== "graph");
  const newest = overview.newest?.panels;
  const first = panels.filter((panel) => FIRST.includes(panel.name));
  return (
    <div className="panels">
      {error !== null && <Failure error={error} onRetry={() => void reload()} />}
      <div className="panel-stack">
        {begun ? (
          first.map((panel) => <Framed key={panel.name} panel={panel} frame={newest?.find((one) => one.name === panel.name)} span={12} />)
        ) : (
          <Panel title="Scores">
            <Waiting run={shown} at={at} />
          </Panel>
        )}
      </div>
      <Panel title="Run" span={4}>
        <RunFacts />
      </Panel>
      {begun && <PanelGrid panels={panels.filter((panel) => !FIRST.includes(panel.name))} newest={newest} />}
      {shown.genes.length > 0 && (
        <>
          <Panel title="Genes and score" note="correlation over candidates" span={12}>
            <GeneCorrelations genes={shown.genes} />
          </Panel>
          <Panel title="Candidates side by side" note="a line ends where a candidate was not measured; drag along an axis to keep those in between" span={12}>
            <ParallelPanel />
          </Panel>
        </>
      )}
      {shown.techniques.some((one) => one.candidates > 0) && (
        <Panel title="Techniques" note="candidates made with each, and how many came into the better half" span={12}>
          <Techniques techniques={shown.techniques} />
        </Panel>
      )}
      {live.lineage_digest && at === null && <p className="quiet small digest">lineage digest <Id id={live.lineage_digest} what="lineage digest" /></p>}
    </div>
  );
}

function Waiting({ run, at }: { run: Run; at: number | null }) {
  if (at !== null) {
    return (
      <Empty title="No generation was complete yet">
        <p>Move the slider on.</p>
      </Empty>
    );
  }
  if (run.status === "failed" || run.status === "cancelled") {
    return <Empty title={`The run ${run.status === "failed" ? "failed" : "was cancelled"} before a generation was complete`} />;
  }
  if (run.status === "submitted") {
    return (
      <Empty title="The run has not started">
        <p>
          What it waits for, and the command that helps, stand above and in <a href="#/queue">the queue</a>.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No generation is complete yet">
      <p>The first scores come when all of generation 0 is measured.</p>
    </Empty>
  );
}
