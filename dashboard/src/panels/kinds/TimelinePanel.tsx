/** What was done when: a row for each lane, runs first, then devices. Failures are marked. */
import type { Bar, Timeline } from "../../api/types";
import { ChartTable } from "../../charts/ChartTable";
import { duration, exactTime, NONE } from "../../lib/format";
import { useWidth } from "../../lib/hooks";
import { href } from "../../lib/router";
import { linear, type Scale } from "../../lib/scale";
import { usePlace } from "../context";

const ROW = 24;
const HEAD = 20;
const RIGHT = 12;
const BOTTOM = 22;
/** Pixels that a letter of a lane's name takes, and those that names take at most. */
const LETTER = 6.6;

interface Placed {
  y: number;
  label: string;
  bars: Bar[];
}

export function TimelinePanel({ panel }: { panel: Timeline }) {
  const [measure, width] = useWidth<HTMLDivElement>();
  const most = width < 500 ? 110 : 220;
  const left = Math.min(most, 16 + LETTER * Math.max(4, ...panel.lanes.map((lane) => lane.name.length)));
  const { rows, heads, height } = arranged(panel);
  const x = linear([0, panel.until || 1], [left, Math.max(left + 40, width - RIGHT)]);
  const failed = panel.lanes.flatMap((lane) => lane.bars).filter((bar) => bar.state === "failed").length;
  const ticks = ticksOf(panel.until, Math.max(2, (width - left) / 110));
  return (
    <figure className="chart" ref={measure}>
      <p className="quiet small">
        from {exactTime(panel.began)}, {duration(panel.until)}; times since then
        {failed > 0 && <span className="lost"> · ✗ failed</span>} · a mark without a bar: only the end was recorded
      </p>
      <svg className="timeline" width={width} height={height} role="group" aria-label={panel.title}>
        {ticks.map((tick) => (
          <g key={tick} className="grid">
            <line x1={x(tick)} x2={x(tick)} y1={HEAD - 4} y2={height - BOTTOM} />
            <text x={x(tick)} y={height - 6} textAnchor={tick === 0 ? "start" : "middle"}>
              {tick === 0 ? "0" : duration(tick).replace(".0 s", " s")}
            </text>
          </g>
        ))}
        {heads.map((head) => (
          <text key={head.name} className="timeline-head" x={0} y={head.y}>
            {head.name}
          </text>
        ))}
        {rows.map((row) => (
          <g key={`${row.y}`}>
            <text className="timeline-lane" x={0} y={row.y + ROW / 2} dy="0.32em">
              <title>{row.label}</title>
              {cut(row.label, Math.floor((left - 12) / LETTER))}
            </text>
            {row.bars.map((bar, index) => (
              <BarOf key={index} bar={bar} leads={bar.name === row.label} x={x} y={row.y} until={panel.until} />
            ))}
          </g>
        ))}
      </svg>
      <ChartTable
        caption={panel.title}
        heads={["Lane", "What", "From (s)", "To (s)", "State"]}
        rows={() => panel.lanes.flatMap((lane) => lane.bars.map((bar) => [lane.name, bar.name, told(bar.start), told(bar.end), bar.state]))}
      />
    </figure>
  );
}

interface BarProps {
  bar: Bar;
  /** It is a whole run, which has the lane's name: only these lead somewhere, because tasks are many. */
  leads: boolean;
  x: Scale;
  y: number;
  until: number;
}

function BarOf({ bar, leads, x, y, until }: BarProps) {
  const { upto } = usePlace();
  const end = x(bar.end ?? until);
  const title = (
    <title>{`${bar.name}: ${bar.state}${bar.start === null ? "" : `, ${duration((bar.end ?? until) - bar.start)}`}${bar.end === null ? " until now" : ""}`}</title>
  );
  const shape = (
    <>
      {bar.start === null ? (
        <line className="timeline-bar" data-state={bar.state} x1={end} x2={end} y1={y + 5} y2={y + ROW - 5} />
      ) : (
        <rect className="timeline-bar" data-state={bar.state} x={x(bar.start)} y={y + 4} width={Math.max(2, end - x(bar.start))} height={ROW - 8} rx="2" />
      )}
      {bar.state === "failed" && (
        <text className="timeline-failed" x={end} y={y + ROW / 2} dy="0.35em" textAnchor="middle">
          ✗
        </text>
      )}
    </>
  );
  return bar.run && leads ? (
    <a href={href(["runs", bar.run], { upto })} aria-label={`${bar.name}, ${bar.state}`}>
      {title}
      {shape}
    </a>
  ) : (
    <g>
      {title}
      {shape}
    </g>
  );
}

/** Rows from top to bottom, with the name of each group above its first. */
function arranged(panel: Timeline): { rows: Placed[]; heads: { name: string; y: number }[]; height: number } {
  const rows: Placed[] = [];
  const heads: { name: string; y: number }[] = [];
  let y = 0;
  let group: string | null = null;
  for (const lane of panel.lanes) {
    if (lane.group !== group) {
      group = lane.group;
      if (group) heads.push({ name: group, y: y + 13 });
      y += HEAD;
    }
    rows.push({ y, label: lane.name, bars: lane.bars });
    y += ROW;
  }
  return { rows, heads, height: y + BOTTOM };
}

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

/** Round times, at most as many as there is room for. */
function ticksOf(until: number, room: number): number[] {
  const step = STEPS.find((one) => until / one <= room) ?? 86_400 * Math.ceil(until / 86_400 / room);
  return Array.from({ length: Math.floor(until / step) + 1 }, (_, index) => index * step);
}

function told(seconds: number | null): string {
  return seconds === null ? NONE : seconds.toFixed(1);
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}
