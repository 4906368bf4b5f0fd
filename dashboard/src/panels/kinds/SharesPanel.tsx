/** Parts of a whole: bars, or a stacked area along an axis. */
import { area, stack, stackOffsetExpand } from "d3-shape";
import { useId, useMemo } from "react";
import type { Shares } from "../../api/types";
import { ChartTable } from "../../charts/ChartTable";
import { number } from "../../lib/format";
import { useWidth } from "../../lib/hooks";
import { extent, labelled, linear, scaleBetween } from "../../lib/scale";
import { directed, look, named, valued } from "../words";
import { Sheet } from "../../ui/Sheet";

const LEFT = 48;
const RIGHT = 14;
const TOP = 10;
const BOTTOM = 40;
const HEIGHT = 220;

const percent = (part: number, whole: number) => `${(whole ? (100 * part) / whole : 0).toFixed(1)} %`;

export function SharesPanel({ panel }: { panel: Shares }) {
  return panel.x === null ? <Bars panel={panel} /> : <Areas panel={panel} />;
}

function Bars({ panel }: { panel: Shares }) {
  const whole = panel.parts.reduce((sum, part) => sum + (part.values[0] ?? 0), 0);
  return (
    <Sheet label={`Table: ${panel.title}`} look="bare">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Part</th>
            <th scope="col" className="num">{named(panel.metric)}</th>
            <th scope="col" className="bar-column">Share</th>
            <th scope="col" className="num">Per cent</th>
          </tr>
        </thead>
        <tbody>
          {panel.parts.map((part) => (
            <tr key={part.name}>
              <th scope="row">{part.name}</th>
              <td className="num">{valued(part.values[0], panel.metric.unit)}</td>
              <td>
                <span className="bar-cell" aria-hidden="true">
                  <i style={{ width: percent(part.values[0] ?? 0, whole) }} />
                </span>
              </td>
              <td className="num">{percent(part.values[0] ?? 0, whole)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}

function Areas({ panel }: { panel: Shares }) {
  const [measure, width] = useWidth<HTMLDivElement>();
  const id = useId();
  const layers = useMemo(() => {
    const make = stack<number, number>().keys(panel.parts.keys()).value((place, part) => panel.parts[part]?.values[place] ?? 0);
    return make.offset(stackOffsetExpand)(panel.at.keys());
  }, [panel]);
  const axis = panel.x;
  const ends = extent(panel.at);
  if (!axis || !ends) return <p className="quiet small">Nothing is measured yet.</p>;
  const log = axis.log && ends[0] > 0;
  const x = scaleBetween(ends[0] < ends[1] ? ends : [ends[0], ends[0] + 1], [LEFT, width - RIGHT], log);
  const y = linear([0, 1], [HEIGHT - BOTTOM, TOP]);
  const shape = area<[number, number]>((_, index) => x(panel.at[index] ?? 0), (one) => y(one[0]), (one) => y(one[1])).digits(1);
  const last = panel.at.length - 1;
  const wholeAt = (index: number) => panel.parts.reduce((sum, part) => sum + (part.values[index] ?? 0), 0);
  return (
    <figure className="chart" ref={measure}>
      <figcaption className="legend">
        {panel.parts.map((part, index) => (
          <span key={part.name}>
            <i className="swatch" style={{ background: look(index).color }} aria-hidden="true" />
            {part.name} <b>{percent(part.values[last] ?? 0, wholeAt(last))}</b>
          </span>
        ))}
      </figcaption>
      <svg width={width} height={HEIGHT} role="img" aria-labelledby={`${id}-t ${id}-d`}>
        <title id={`${id}-t`}>{panel.title}</title>
        <desc id={`${id}-d`}>{panel.says}</desc>
        {[0, 0.25, 0.5, 0.75, 1].map((tick) => (
          <g key={tick} className="grid">
            <line x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text x={LEFT - 8} y={y(tick)} dy="0.32em" textAnchor="end">
              {100 * tick} %
            </text>
          </g>
        ))}
        {labelled(x, Math.max(2, width / 90), axis.whole).map((tick) => (
          <text key={tick.at} className="tick" x={x(tick.at)} y={HEIGHT - BOTTOM + 16} textAnchor="middle">
            {tick.label}
          </text>
        ))}
        <text className="axis-name" x={width - RIGHT} y={HEIGHT - 6} textAnchor="end">
          {directed(axis)}
        </text>
        {layers.map((layer) => (
          <path key={layer.key} className="share" fill={look(layer.key).color} d={shape(layer.map((one): [number, number] => [one[0], one[1]])) ?? undefined}>
            <title>{panel.parts[layer.key]?.name}</title>
          </path>
        ))}
      </svg>
      <ChartTable
        caption={panel.title}
        heads={[named(axis), ...panel.parts.map((part) => part.name)]}
        rows={() => panel.at.map((place, index) => [number(place), ...panel.parts.map((part) => `${valued(part.values[index], panel.metric.unit)} (${percent(part.values[index] ?? 0, wholeAt(index))})`)])}
      />
    </figure>
  );
}
