/** The drawing of a graph: boxes and the lines between them. */
import { useState } from "react";
import type { Node } from "../../api/types";
import { score } from "../../lib/format";
import { BOX, type Box, GAP, type Line, type Plan } from "./layout";

interface Props {
  title: string;
  drawing: Plan;
  fit: boolean;
  /** What opens a node; null if the node has no page. */
  opens: (node: Node) => (() => void) | null;
  onToggle: (group: string) => void;
}

export function Drawing({ title, drawing, fit, opens, onToggle }: Props) {
  const [on, setOn] = useState<string | null>(null);
  const { width, height } = drawing;
  return (
    <div className="sheet lineage" tabIndex={0} role="region" aria-label={`Drawing: ${title}`}>
      <svg viewBox={`0 0 ${width} ${height}`} width={fit ? "100%" : width} height={fit ? undefined : height} role="group" aria-label={`${title}, from left to right`}>
        <title>{title}</title>
        {drawing.lanes.map((lane) => (
          <rect key={lane.x} className="lane" x={lane.x} y="2" width={lane.width} height={height - 4} rx="6" />
        ))}
        {drawing.columns.map((column) => (
          <text key={column.x} className="lineage-head" x={column.x} y="18">
            {column.label}
          </text>
        ))}
        {drawing.lines.map((line) => (
          <path key={`${line.from.key}>${line.to.key}`} className="descent" d={curve(line)} data-ancestor={line.ours} data-base={line.base}
            data-on={on === line.from.key || on === line.to.key}>
            {line.says && <title>{line.says}</title>}
          </path>
        ))}
        {drawing.boxes.map((box) => (
          <BoxNode key={box.key} box={box} onPoint={setOn} opens={opens} onToggle={onToggle} />
        ))}
      </svg>
    </div>
  );
}

function curve({ from, to, via }: Line): string {
  const x0 = from.x + BOX.width;
  const y0 = from.y + BOX.height / 2;
  const x1 = to.x;
  const y1 = to.y + BOX.height / 2;
  const bend = (fromX: number, fromY: number, toX: number, toY: number) => {
    const pull = Math.min(70, (toX - fromX) / 2);
    return `C${fromX + pull} ${fromY} ${toX - pull} ${toY} ${toX} ${toY}`;
  };
  if (via === null) return `M${x0} ${y0}${bend(x0, y0, x1, y1)}`;
  return `M${x0} ${y0}${bend(x0, y0, x0 + GAP.x, via)}H${x1 - GAP.x}${bend(x1 - GAP.x, via, x1, y1)}`;
}

interface NodeProps {
  box: Box;
  onPoint: (key: string | null) => void;
  opens: Props["opens"];
  onToggle: (group: string) => void;
}

function BoxNode({ box, onPoint, opens, onToggle }: NodeProps) {
  const first = box.members[0];
  if (!first) return null;
  const many = box.members.length > 1;
  const onOpen = opens(first);
  const act = () => (many ? onToggle(box.key) : onOpen?.());
  const kinds = [...new Set(box.members.map((one) => one.group))].filter(Boolean).join(", ");
  const title = many ? `${box.members.length} siblings` : first.name;
  const below = many ? kinds : [first.group, first.value === null ? "" : score(first.value)].filter(Boolean).join(" · ");
  return (
    <g className="node" transform={`translate(${box.x} ${box.y})`} role={many || onOpen ? "button" : "img"} tabIndex={0} data-kind={first.group}
      data-many={many} data-aside={!box.ours} data-champion={box.result} data-plain={!many && !onOpen}
      aria-label={`${title}, ${below}${many ? ", open" : ""}`}
      onClick={act} onPointerEnter={() => onPoint(box.key)} onPointerLeave={() => onPoint(null)} onFocus={() => onPoint(box.key)}
      onBlur={() => onPoint(null)} onKeyDown={(event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          act();
        } else if (event.key === "Escape" && box.group) onToggle(box.group);
      }}>
      <title>{first.says || `${title}, ${below}`}</title>
      {many && <rect className="behind" x="5" y="-5" width={BOX.width} height={BOX.height} rx="5" />}
      <rect width={BOX.width} height={BOX.height} rx="5" />
      {box.result && <path className="mark" transform={`translate(${BOX.width - 14} 14)`} d="M0-6L6 0 0 6-6 0z" />}
      <text x="10" y="17" className="node-title">
        {cut(title, box.result ? 18 : 21)}
      </text>
      <text x="10" y="31" className="node-below">
        {cut(below, 25)}
      </text>
    </g>
  );
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
