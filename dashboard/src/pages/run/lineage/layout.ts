/** Lineage as columns of nodes: sources first, then generations. Siblings make one node until it is opened. */
import type { Lineage, LineageNode } from "../../../api/types";

export type Drawable = Pick<Lineage, "nodes" | "edges">;

export interface Box {
  key: string;
  members: LineageNode[];
  column: number;
  row: number;
  x: number;
  y: number;
  ancestor: boolean;
  champion: boolean;
  /** The group that an opened member belongs to. */
  group: string | null;
}

export interface Line {
  from: Box;
  to: Box;
  ancestor: boolean;
  /** From the base, which is an input of nearly everything. */
  base: boolean;
}

export interface Drawing {
  boxes: Box[];
  lines: Line[];
  columns: { label: string; x: number }[];
  width: number;
  height: number;
  groups: number;
}

export const BOX = { width: 152, height: 40 };
const GAP = { x: 84, y: 14 };
const HEAD = 30;

export function draw(answer: Drawable, opened: ReadonlySet<string>, all: boolean): Drawing {
  const nodes = answer.nodes;
  const parents = new Map<string, string[]>(nodes.map((node) => [node.id, []]));
  for (const edge of answer.edges) parents.get(edge.to)?.push(edge.from);
  const columnOf = columns(nodes, parents);

  const groups = new Map<string, LineageNode[]>();
  for (const node of nodes) {
    const key = groupKey(node, parents.get(node.id) ?? [], columnOf.get(node.id) ?? 0);
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
        ancestor: part.some((one) => one.ancestor),
        champion: part.some((one) => one.champion),
        group: many && parts.length > 1 ? key : null,
      };
      boxes.push(box);
      for (const one of part) boxOf.set(one.id, box);
    }
  }
  const lines = connect(answer.edges, boxOf);
  return { ...place(boxes, lines), lines, groups: collapsible };
}

function groupKey(node: LineageNode, parents: string[], column: number): string {
  if (parents.length === 0 || node.champion) return node.id;
  return `${column}|${node.kind}|${node.ancestor ? "line" : "aside"}|${[...parents].sort().join(",")}`;
}

function columns(nodes: LineageNode[], parents: Map<string, string[]>): Map<string, number> {
  const raw = new Map<string, number>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const depth = (id: string, seen: number): number => {
    const known = raw.get(id);
    if (known !== undefined) return known;
    const node = byId.get(id);
    const above = parents.get(id) ?? [];
    const number =
      node?.generation !== null && node?.generation !== undefined
        ? node.generation + 1
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

function connect(edges: Lineage["edges"], boxOf: Map<string, Box>): Line[] {
  const found = new Map<string, Line>();
  for (const edge of edges) {
    const from = boxOf.get(edge.from);
    const to = boxOf.get(edge.to);
    if (!from || !to || from === to) continue;
    const key = `${from.key}>${to.key}`;
    if (!found.has(key)) found.set(key, { from, to, ancestor: from.ancestor && to.ancestor, base: from.members[0]?.kind === "base" });
  }
  return [...found.values()];
}

/** Rows by the mean of neighbours' rows, swept a few times; then coordinates. */
function place(boxes: Box[], lines: Line[]): Omit<Drawing, "lines" | "groups"> {
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
      stack.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0) || Number(b.ancestor) - Number(a.ancestor));
      stack.forEach((box, row) => (box.row = row - (stack.length - 1) / 2));
    }
  }
  const tallest = Math.max(1, ...stacks.map((stack) => stack.length));
  const height = HEAD + tallest * (BOX.height + GAP.y) + GAP.y;
  const centre = HEAD + (height - HEAD) / 2;
  for (const box of boxes) {
    box.x = 8 + box.column * (BOX.width + GAP.x);
    box.y = centre + box.row * (BOX.height + GAP.y) - BOX.height / 2;
  }
  return {
    boxes,
    columns: stacks.map((stack, column) => ({ label: headOf(stack), x: 8 + column * (BOX.width + GAP.x) })),
    width: 16 + count * BOX.width + (count - 1) * GAP.x,
    height,
  };
}

function middle(boxes: Box[] | undefined): number | null {
  return boxes && boxes.length > 0 ? boxes.reduce((sum, box) => sum + box.row, 0) / boxes.length : null;
}

function headOf(stack: Box[]): string {
  const first = stack[0]?.members[0];
  if (!first) return "";
  return first.generation === null ? "given" : `generation ${first.generation}`;
}
