/** Nodes and edges, such as a lineage, in columns from left to right. */
import { useMemo, useState } from "react";
import type { Graph, Node } from "../../api/types";
import { ChartTable } from "../../charts/ChartTable";
import { plural, score, short } from "../../lib/format";
import { go, href } from "../../lib/router";
import { usePlace } from "../context";
import { Drawing } from "./Drawing";
import { draw } from "./layout";

/** The result of the run, which is marked; null if it has none. */
export function GraphPanel({ panel, result = null }: { panel: Graph; result?: string | null }) {
  const { pick, upto } = usePlace();
  const opens = (node: Node) => {
    if (pick) return () => pick(node.id);
    const run = node.run;
    return run ? () => go(href(["runs", run], { upto })) : null;
  };
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const [fit, setFit] = useState(false);
  const [aside, setAside] = useState(true);
  const graph = useMemo(() => (aside ? panel : onlyOurs(panel)), [panel, aside]);
  const drawing = useMemo(() => draw(graph, opened, all, result), [graph, opened, all, result]);
  const toggle = (key: string) => {
    const next = new Set(opened);
    if (!next.delete(key)) next.add(key);
    setOpened(next);
  };
  const ours = panel.nodes.filter((node) => node.ours && node.id !== result).length;
  const names = new Map(panel.nodes.map((node) => [node.id, node.name]));
  return (
    <>
      <div className="chart-tools">
        {drawing.groups > 0 && (
          <button type="button" className="button small" aria-pressed={all} onClick={() => setAll(!all)}>
            {all ? "Collapse siblings" : "Expand siblings"}
          </button>
        )}
        {panel.nodes.some((node) => !node.ours) && (
          <label className="check small">
            <input type="checkbox" checked={aside} onChange={(event) => setAside(event.target.checked)} />
            {result ? "Show siblings" : "Show all nodes"}
          </label>
        )}
        <label className="check small">
          <input type="checkbox" checked={fit} onChange={(event) => setFit(event.target.checked)} />
          Fit
        </label>
        <span className="quiet small">
          {result ? plural(ours, "ancestor") : plural(panel.nodes.length, "node")}
          {drawing.groups > 0 && !all && `; ${plural(drawing.groups, "stack")} of siblings: click to open`}
          {result && drawing.boxes.some((box) => !box.ours) && "; dashed: not an ancestor of the result"}
          {drawing.lines.some((line) => line.base && !line.ours) && "; point at the base to see its other lines"}
        </span>
      </div>
      <Drawing title={panel.title} drawing={drawing} fit={fit} opens={opens} onToggle={toggle} />
      <ChartTable
        caption={panel.title}
        heads={["Name", "Kind", panel.along || "Column", panel.metric?.name ?? "Value", "Made from", "What", "Of the result"]}
        rows={() => panel.nodes.map((node) => [
          opens(node) ? (
            <button key="open" type="button" className="link" onClick={() => opens(node)?.()}>
              {node.name || short(node.id)}
            </button>
          ) : node.name,
          node.group,
          node.lane || (node.column ?? "–"),
          score(node.value),
          panel.edges.filter((edge) => edge.target === node.id).map((edge) => [names.get(edge.source), edge.says && `(${edge.says})`].filter(Boolean).join(" ")).join(", "),
          node.says,
          node.ours ? "yes" : "no",
        ])}
      />
    </>
  );
}

function onlyOurs(panel: Graph): Graph {
  const nodes = panel.nodes.filter((node) => node.ours);
  const kept = new Set(nodes.map((node) => node.id));
  return { ...panel, nodes, edges: panel.edges.filter((edge) => kept.has(edge.source) && kept.has(edge.target)) };
}
