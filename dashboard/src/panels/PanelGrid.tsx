/** Panels of a run beneath each other, each in its frame: title, sentence, export. */
import { useId } from "react";
import type { Panels } from "../api/types";
import { ArmsPanel } from "./kinds/ArmsPanel";
import { ExportMenu } from "./ExportMenu";
import { FrontPanel } from "./kinds/FrontPanel";
import { GatesPanel } from "./kinds/GatesPanel";
import { GraphPanel } from "./graph/GraphPanel";
import { LinesPanel } from "./kinds/LinesPanel";
import { MatrixPanel } from "./kinds/MatrixPanel";
import { SamplesPanel } from "./kinds/SamplesPanel";
import { SharesPanel } from "./kinds/SharesPanel";
import { StripPanel } from "./kinds/StripPanel";
import { TimelinePanel } from "./kinds/TimelinePanel";
import { UnitsPanel } from "./kinds/UnitsPanel";
import { Coded } from "../ui/Coded";

export type Panel = Panels["panels"][number];

/** Panels that need half of the page's width. */
const HALF: ReadonlySet<Panel["kind"]> = new Set(["lines", "front", "shares"]);

interface Props {
  panels: readonly Panel[];
  /** The same panels as they are now, while the past is shown: their axes hold still. */
  newest?: readonly Panel[];
}

export function PanelGrid({ panels, newest }: Props) {
  const spans = spansOf(panels);
  return panels.map((panel, index) => (
    <Framed key={panel.name} panel={panel} frame={newest?.find((one) => one.name === panel.name)} span={spans[index] ?? 12} />
  ));
}

/** Two halves stand beside each other; a half without another one takes the whole width. */
function spansOf(panels: readonly Panel[]): number[] {
  const spans: number[] = [];
  while (spans.length < panels.length) {
    const pair = panels.slice(spans.length, spans.length + 2);
    spans.push(...(pair.length === 2 && pair.every((panel) => HALF.has(panel.kind)) ? [6, 6] : [12]));
  }
  return spans;
}

export function Framed({ panel, frame, span }: { panel: Panel; frame?: Panel; span: number }) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id} style={{ "--span": span } as React.CSSProperties} data-panel={panel.name}>
      <header className="panel-head exported">
        <div className="panel-title">
          <h2 id={id}>{panel.title}</h2>
          <span className="quiet small"><Coded text={panel.says} /></span>
        </div>
        <ExportMenu name={panel.name} title={panel.title} />
      </header>
      {drawn(panel, frame)}
      {panel.total !== null && <p className="quiet small">This is a part of {panel.total.toLocaleString("en-US")}; {panel.kind === "lines" ? "zooming in shows more, and the" : "the"} exported table has all.</p>}
    </section>
  );
}

export function drawn(panel: Panel, frame?: Panel) {
  switch (panel.kind) {
    case "lines":
      return <LinesPanel panel={panel} frame={frame?.kind === "lines" ? frame : undefined} />;
    case "front":
      return <FrontPanel panel={panel} />;
    case "matrix":
      return <MatrixPanel panel={panel} />;
    case "arms":
      return <ArmsPanel panel={panel} />;
    case "shares":
      return <SharesPanel panel={panel} />;
    case "units":
      return <UnitsPanel panel={panel} />;
    case "samples":
      return <SamplesPanel panel={panel} />;
    case "gates":
      return <GatesPanel panel={panel} />;
    case "graph":
      return <GraphPanel panel={panel} />;
    case "strip":
      return <StripPanel panel={panel} />;
    case "timeline":
      return <TimelinePanel panel={panel} />;
    default:
      return unknown(panel);
  }
}

/** The set is closed: the compiler says which kind is missing above. A newer server may have more. */
function unknown(panel: never) {
  return <p className="quiet small">This page cannot draw {(panel as Panel).kind}; the export has the data.</p>;
}
