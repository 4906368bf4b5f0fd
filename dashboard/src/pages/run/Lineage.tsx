/** What the result was made from: the graphs among the run's panels. */
import { Coded } from "../../ui/Coded";
import { GraphPanel } from "../../panels/graph/GraphPanel";
import { ExportMenu } from "../../panels/ExportMenu";
import { Empty, Loaded } from "../../ui/Messages";
import { useRun } from "./context";

export default function Lineage() {
  const { overview } = useRun();
  return (
    <Loaded of={overview.shown}>
      {({ head, panels }) => {
        const graphs = panels.flatMap((panel) => (panel.kind === "graph" ? [panel] : []));
        const result = head.result?.model ?? null;
        return graphs.length === 0 ? (
          <div className="sheet">
            <Empty title="No lineage yet">
              <p>It is shown here once the run has a result.</p>
            </Empty>
          </div>
        ) : (
          graphs.map((panel) => (
            <section key={panel.name} className="graph-part" aria-label={panel.title}>
              <header className="panel-head exported">
                <div className="panel-title">
                  <h2>{panel.title}</h2>
                  <span className="quiet small"><Coded text={panel.says} /></span>
                </div>
                <ExportMenu name={panel.name} title={panel.title} />
              </header>
              <GraphPanel panel={panel} result={panel.nodes.some((node) => node.id === result) ? result : null} />
            </section>
          ))
        );
      }}
    </Loaded>
  );
}
