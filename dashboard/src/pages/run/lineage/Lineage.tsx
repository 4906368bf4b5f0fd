/** Where the champion comes from, drawn from the sources on. */
import { useMemo, useState } from "react";
import type { Lineage as Answer } from "../../../api/types";
import { plural, score, short } from "../../../lib/format";
import { useResource } from "../../../lib/hooks";
import { ChartTable } from "../../../charts/ChartTable";
import { Empty, Loaded } from "../../../ui/Messages";
import { runPath, useMerging } from "../context";
import { draw, type Drawable } from "./layout";
import { Graph } from "./Graph";

export default function Lineage() {
  const { live, shown, at } = useMerging();
  const champion = shown.champion?.recipe_id;
  const answer = useResource<Answer>(champion ? runPath(live.run, "/lineage", { candidate: "champion", at }) : null);
  if (!champion) {
    return (
      <div className="sheet">
        <Empty title="No champion yet">
          <p>The first one comes at the end of generation 0. Its lineage is shown here.</p>
        </Empty>
      </div>
    );
  }
  return <Loaded of={answer}>{(data) => <Drawn data={data} />}</Loaded>;
}

function Drawn({ data }: { data: Drawable }) {
  const { open } = useMerging();
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const [fit, setFit] = useState(false);
  const [aside, setAside] = useState(true);
  const answer = useMemo(() => (aside ? data : onlyAncestors(data)), [data, aside]);
  const drawing = useMemo(() => draw(answer, opened, all), [answer, opened, all]);
  const toggle = (key: string) => {
    const next = new Set(opened);
    if (!next.delete(key)) next.add(key);
    setOpened(next);
  };
  const ancestors = data.nodes.filter((node) => node.ancestor).length;
  return (
    <>
      <div className="filters">
        <button type="button" className="button" aria-pressed={all} onClick={() => setAll(!all)}>
          {all ? "Collapse siblings" : "Expand siblings"}
        </button>
        <label className="check">
          <input type="checkbox" checked={aside} onChange={(event) => setAside(event.target.checked)} />
          Show siblings
        </label>
        <label className="check">
          <input type="checkbox" checked={fit} onChange={(event) => setFit(event.target.checked)} />
          Fit
        </label>
        <span className="quiet small">
          {plural(ancestors, "ancestor")}
          {drawing.groups > 0 && !all && `; ${plural(drawing.groups, "stack")} of siblings: click to open`}
        </span>
      </div>
      <Graph drawing={drawing} fit={fit} onOpen={open} onToggle={toggle} />
      <ChartTable
        caption="Lineage"
        heads={["Recipe", "Name", "Made by", "Generation", "Score", "Ancestor"]}
        rows={data.nodes.map((node) => [
          <button key="open" type="button" className="link mono" onClick={() => open(node.id)}>
            {short(node.id)}
          </button>,
          node.name,
          node.kind,
          node.generation === null ? "–" : `${node.generation}/${node.slot}`,
          score(node.score),
          node.ancestor ? "yes" : "no",
        ])}
      />
    </>
  );
}

function onlyAncestors(data: Drawable): Drawable {
  const nodes = data.nodes.filter((node) => node.ancestor);
  const kept = new Set(nodes.map((node) => node.id));
  return { nodes, edges: data.edges.filter((edge) => kept.has(edge.from) && kept.has(edge.to)) };
}
