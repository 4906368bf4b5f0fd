/** How a run goes: fitness, components, diversity, techniques, the front, the verdict. */
import { Empty } from "../../../ui/Messages";
import { Panel } from "../../../ui/Panel";
import { useRun } from "../context";
import { ComponentsChart, DiversityChart, FitnessChart } from "./Curves";
import { GeneCorrelations } from "./GeneCorrelations";
import { ParallelPanel } from "./ParallelPanel";
import { Pareto } from "../../../charts/Pareto";
import { Rivals } from "./Rivals";
import { RunFacts } from "./RunFacts";
import { Techniques } from "./Techniques";

export function Overview() {
  const { live, shown, at, open } = useRun();
  const begun = shown.generations.length > 0;
  // A front of one candidate is no choice.
  const front = shown.front && shown.front.candidates.length > 1 ? shown.front : null;
  return (
    <div className="panels">
      <Panel title="Fitness" note="scores on each generation's own draw; the champion's on the selection slice" span={8}>
        {begun ? <FitnessChart /> : <Waiting status={shown.status} at={at} />}
      </Panel>
      <Panel title="Run" span={4}>
        <RunFacts />
      </Panel>
      {shown.rivals.length > 0 && (
        <Panel title="Rivals" note="on the test slice, which nothing looked at before; intervals are 95 %" span={12}>
          <Rivals rivals={shown.rivals} test={shown.test} />
        </Panel>
      )}
      {begun && (
        <>
          <Panel title="Components of the champion" note="1 is the best source" span={6}>
            <ComponentsChart />
          </Panel>
          <Panel title="Diversity" note="of the population, relative to the sources'" span={6}>
            <DiversityChart />
          </Panel>
        </>
      )}
      {front && (
        <Panel title="Pareto front" note="no candidate is better in one objective without being worse in another" span={shown.genes.length > 0 ? 6 : 12}>
          <Pareto front={front} champion={shown.champion?.recipe_id ?? null} onPick={open} />
        </Panel>
      )}
      {shown.genes.length > 0 && (
        <Panel title="Genes and score" note="correlation over candidates" span={front ? 6 : 12}>
          <GeneCorrelations genes={shown.genes} />
        </Panel>
      )}
      {shown.genes.length > 0 && (
        <Panel title="Candidates side by side" note="drag along an axis to keep those in between" span={12}>
          <ParallelPanel />
        </Panel>
      )}
      {shown.techniques.length > 0 && (
        <Panel title="Techniques" note="candidates made with each, and how many came into the better half" span={12}>
          <Techniques techniques={shown.techniques} />
        </Panel>
      )}
      {live.lineage_digest && at === null && <p className="quiet small digest">lineage digest <span className="mono">{live.lineage_digest}</span></p>}
    </div>
  );
}

function Waiting({ status, at }: { status: string; at: number | null }) {
  if (at !== null) {
    return (
      <Empty title="No generation was complete yet">
        <p>Move the slider on.</p>
      </Empty>
    );
  }
  if (status === "submitted") {
    return (
      <Empty title="Waiting for a worker">
        <p>
          <a href="#/queue">The queue</a> says what it waits for. A worker is started with
        </p>
        <code>forge worker</code>
      </Empty>
    );
  }
  return (
    <Empty title="No generation is complete yet">
      <p>The first scores come when all of generation 0 is measured.</p>
    </Empty>
  );
}
