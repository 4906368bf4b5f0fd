/** A graph as columns of boxes: what is given first. Siblings make one box until it is opened. */
import type { Graph, Node } from "../../api/types";

export interface Box {
  key: string;
  members: Node[];
  column: number;
  row: number;
  x: number;
  y: number;
  /** It is the result, or on the way to it. */
  ours: boolean;
  result: boolean;
  /** The group that an opened member belongs to. */
  group: string | null;
}

export interface Line {
  from: Box;
  to: Box;
  ours: boolean;
  /** From a base, which is an input of nearly everything. */
  base: boolean;
  says: string;
  /** Height of the track above all boxes that it takes past the columns between its ends; null if there are none. */
  via: number | null;
}

export interface Plan {
  boxes: Box[];
  lines: Line[];
  columns: { label: string; x: number }[];
  /** Stretches of columns that belong together, such as a phase. */
  lanes: { x: number; width: number }[];
  width: number;
  height: number;
  groups: number;
}

export const BOX = { width: 152, height: 40 };
export const GAP = { x: 84, y: 14 };
const HEAD = 30;
/** Distance of two tracks above the boxes. */
const TRACK = 9;
/** Nodes of a graph that needs no stacks. */
const SMALL = 30;

export function draw(graph: Graph, opened: ReadonlySet<string>, all: boolean, result: string | null): Plan {
  const nodes = graph.nodes;
  const parents = new Map<string, string[]>(nodes.map((node) => [node.id, []]));
  for (const edge of graph.edges) parents.get(edge.target)?.push(edge.source);
  const columnOf = columns(nodes, parents);

  // A small graph is shown whole.
  const stacked = result !== null || nodes.length > SMALL;
  const groups = new Map<string, Node[]>();
  for (const node of nodes) {
    const key = !stacked ? node.id : groupKey(node, parents.get(node.id) ?? [], columnOf.get(node.id) ?? 0, result);
    groups.set(key, [...(groups.get(key) ?? []), node]);
  }
  const boxes: Box[] = [];
  const boxOf = new Map<string, Box>();
  let collapsible = 0;
  for (const [key, members] of groups) {
    const many = members.length > 1;
    if (many) collapsible += 1;
    const parts = many && (all || opened.has(key)) ? members.map((one) => [one]) : [members];
    for (const part of parts) {
      const first = part[0];
      if (!first) continue;
      const box: Box = {
        key: part.length > 1 ? key : first.id,
        members: part,
        column: columnOf.get(first.id) ?? 0,
        row: 0,
        x: 0,
        y: 0,
        ours: part.some((one) => one.ours),
        result: part.some((one) => one.id === result),
        group: many && parts.length > 1 ? key : null,
      };
      boxes.push(box);
      for (const one of part) boxOf.set(one.id, box);
    }
  }
  const lines = connect(graph.edges, boxOf, stacked);
  const tracks = route(lines);
  return { ...place(boxes, lines, graph.along, tracks), lines, groups: collapsible };
}

/** Nodes of one key make a stack. */
function groupKey(node: Node, parents: string[], column: number, result: string | null): string {
  if (parents.length === 0 || node.id === result) return node.id;
  return `${column}|${node.group}|${node.ours ? "line" : "aside"}|${[...parents].sort().join(",")}`;
}

function columns(nodes: Node[], parents: Map<string, string[]>): Map<string, number> {
  const raw = new Map<string, number>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const depth = (id: string, seen: number): number => {
    const known = raw.get(id);
    if (known !== undefined) return known;
    const node = byId.get(id);
    const above = parents.get(id) ?? [];
    const number =
      node?.column !== null && node?.column !== undefined
        ? node.column + 1
        : above.length === 0 || seen > nodes.length
          ? 0
          : 1 + Math.max(...above.map((one) => depth(one, seen + 1)));
    raw.set(id, number);
    return number;
  };
  for (const node of nodes) depth(node.id, 0);
  const used = [...new Set(raw.values())].sort((a, b) => a - b);
  return new Map([...raw].map(([id, number]) => [id, used.indexOf(number)]));
}

function connect(edges: Graph["edges"], boxOf: Map<string, Box>, stacked: boolean): Line[] {
  const found = new Map<string, Line>();
  for (const edge of edges) {
    const from = boxOf.get(edge.source);
    const to = boxOf.get(edge.target);
    if (!from || !to || from === to) continue;
    const key = `${from.key}>${to.key}`;
    if (!found.has(key)) found.set(key, { from, to, ours: from.ours && to.ours, base: stacked && from.members[0]?.group === "base", says: edge.says, via: null });
  }
  return [...found.values()].sort((a, b) => Number(a.ours) - Number(b.ours)); // ours are drawn above the others
}

/** Gives lines past a column a track above the boxes, one for all of a box; returns the number of tracks. */
function route(lines: Line[]): number {
  const ends = new Map<Box, number>();
  for (const { from, to } of lines) if (to.column > from.column + 1) ends.set(from, Math.max(ends.get(from) ?? 0, to.column));
  const free: number[] = []; // the column from which on each track is free
  const tracks = new Map<Box, number>();
  for (const [box, end] of [...ends].sort(([a], [b]) => a.column - b.column)) {
    const at = free.findIndex((column) => column <= box.column);
    const track = at < 0 ? free.length : at;
    free[track] = end;
    tracks.set(box, track);
  }
  for (const line of lines) if (line.to.column > line.from.column + 1) line.via = HEAD + TRACK * ((tracks.get(line.from) ?? 0) + 0.5);
  return free.length;
}

/** Rows by the mean of neighbours' rows, swept a few times; then coordinates. */
function place(boxes: Box[], lines: Line[], along: string, tracks: number): Omit<Plan, "lines" | "groups"> {
  const count = Math.max(0, ...boxes.map((box) => box.column)) + 1;
  const stacks: Box[][] = Array.from({ length: count }, (_, column) => boxes.filter((box) => box.column === column));
  const up = new Map<Box, Box[]>();
  const down = new Map<Box, Box[]>();
  for (const line of lines) {
    up.set(line.to, [...(up.get(line.to) ?? []), line.from]);
    down.set(line.from, [...(down.get(line.from) ?? []), line.to]);
  }
  for (const stack of stacks) stack.forEach((box, row) => (box.row = row - (stack.length - 1) / 2));
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const near = sweep % 2 ? down : up;
    const turned = sweep % 2 ? [...stacks].reverse() : stacks;
    for (const stack of turned) {
      const wish = new Map(stack.map((box) => [box, middle(near.get(box)) ?? box.row]));
      stack.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0) || Number(b.ours) - Number(a.ours));
      stack.forEach((box, row) => (box.row = row - (stack.length - 1) / 2));
    }
  }
  const tallest = Math.max(1, ...stacks.map((stack) => stack.length));
  const top = HEAD + TRACK * tracks;
  const height = top + tallest * (BOX.height + GAP.y) + GAP.y;
  const centre = top + (height - top) / 2;
  for (const box of boxes) {
    box.x = 8 + box.column * (BOX.width + GAP.x);
    box.y = centre + box.row * (BOX.height + GAP.y) - BOX.height / 2;
  }
  const names = stacks.map((stack) => stack[0]?.members[0]?.lane ?? "");
  return {
    boxes,
    columns: stacks.map((stack, column) => ({ label: laned(names, column) ?? headOf(stack, along), x: 8 + column * (BOX.width + GAP.x) })),
    lanes: lanesOf(names),
    width: 16 + count * BOX.width + (count - 1) * GAP.x,
    height,
  };
}

function middle(boxes: Box[] | undefined): number | null {
  return boxes && boxes.length > 0 ? boxes.reduce((sum, box) => sum + box.row, 0) / boxes.length : null;
}

/** A lane's name above its first column, and nothing above its others; undefined without lanes. */
function laned(names: string[], column: number): string | undefined {
  return names.every((name) => !name) ? undefined : names[column] === names[column - 1] ? "" : names[column];
}

function lanesOf(names: string[]): Plan["lanes"] {
  const found: Plan["lanes"] = [];
  names.forEach((name, column) => {
    const step = BOX.width + GAP.x;
    const last = found.at(-1);
    if (last && name === names[column - 1]) last.width += step;
    else if (name) found.push({ x: column * step, width: BOX.width + 16 });
  });
  return found;
}

/** "generation 3" where the graph has a word for its columns; "given" above what has no column. */
function headOf(stack: Box[], along: string): string {
  if (stack.length === 0 || !along) return "";
  const placed = stack.flatMap((box) => box.members).find((one) => one.column !== null);
  return placed ? `${along} ${placed.column}` : "given";
}
