/** How a run goes: fitness, components, diversity, techniques, the front, the verdict. */
import { Id } from "../../../ui/CopyButton";
import { Empty } from "../../../ui/Messages";
import { Panel } from "../../../ui/Panel";
import { useMerging } from "../context";
import type { Run } from "../../../api/types";
import { plural } from "../../../lib/format";
import { ByDomain } from "./ByDomain";
import { ChampionChart, ComponentsChart, DiversityChart, FitnessChart } from "./Curves";
import { GeneCorrelations } from "./GeneCorrelations";
import { ParallelPanel } from "./ParallelPanel";
import { Pareto } from "../../../charts/Pareto";
import { Rivals } from "./Rivals";
import { RunFacts } from "./RunFacts";
import { Techniques } from "./Techniques";

export function Overview() {
  const { live, shown, at, open } = useMerging();
  const begun = shown.generations.length > 0;
  const front = shown.front && shown.front.candidates.length + shown.front.dominated.length > 1 ? shown.front : null;
  return (
    <div className="panels">
      <Panel title="Fitness" note="1 is the best source; the two charts stand on different items and cannot be compared" span={8}>
        {begun ? (
          <>
            <h3 className="chart-head">Candidates, on each generation's own draw of the search slice{counted(shown.items?.search)}</h3>
            <FitnessChart />
            <h3 className="chart-head">Champion, on the selection slice{counted(shown.items?.selection)}</h3>
            <ChampionChart />
          </>
        ) : (
          <Waiting run={shown} at={at} />
        )}
      </Panel>
      <Panel title="Run" span={4}>
        <RunFacts />
      </Panel>
      {shown.rivals.length > 0 && (
        <Panel title="Rivals" note="on the test slice, which nothing looked at before; intervals are 95 %" span={12}>
          <Rivals rivals={shown.rivals} test={shown.test} />
        </Panel>
      )}
      {shown.domains && shown.domains.rows.length > 0 && (
        <Panel title="By domain" note={`on the ${shown.domains.slice} slice; differences without an interval`} span={12}>
          <ByDomain domains={shown.domains} />
        </Panel>
      )}
      {begun && (
        <>
          <Panel title="Components of the champion" note="on the selection slice; 1 is the best source" span={6}>
            <ComponentsChart />
          </Panel>
          <Panel title="Diversity" note="of the population, relative to the sources'" span={6}>
            <DiversityChart />
          </Panel>
        </>
      )}
      {front && (
        <Panel title="Pareto front" note="on the selection slice; small points are dominated: another candidate is as good in every objective and better in one" span={shown.genes.length > 0 ? 6 : 12}>
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
      {shown.techniques.some((one) => one.candidates > 0) && (
        <Panel title="Techniques" note="candidates made with each, and how many came into the better half" span={12}>
          <Techniques techniques={shown.techniques} />
        </Panel>
      )}
      {live.lineage_digest && at === null && <p className="quiet small digest">lineage digest <Id id={live.lineage_digest} what="lineage digest" /></p>}
    </div>
  );
}

function counted(items: number | undefined): string {
  return items === undefined ? "" : ` (${plural(items, "item")})`;
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
          What it waits for stands above, and in <a href="#/queue">the queue</a>. A worker is started with
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
