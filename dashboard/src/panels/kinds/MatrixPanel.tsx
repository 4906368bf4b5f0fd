/** Values by row and column as a table whose colours say how much. */
import { useMemo } from "react";
import type { Matrix, Metric } from "../../api/types";
import { css, inkOn, mix, themed } from "../../lib/colour";
import { NONE, number } from "../../lib/format";
import { extent } from "../../lib/scale";
import { Sheet } from "../../ui/Sheet";
import { useTheme } from "../../ui/frame/theme";
import { directed, inOneForm, named } from "../words";

export function MatrixPanel({ panel }: { panel: Matrix }) {
  const [theme] = useTheme();
  // Read again when the theme is another one: the ink on a cell goes by the colour that it has.
  const ends = useMemo(() => ({ theme, none: themed("--heat-0"), much: themed("--heat-1"), plus: themed("--c-1"), minus: themed("--c-2") }), [theme]);
  const alike = panel.metrics.length === 1;
  const compared = panel.ours !== null && panel.columns.length > 1 && panel.metrics.every((metric) => metric.better !== null);
  const measures = !alike && panel.rows.some((row, index) => row !== panel.metrics[index]?.name);
  const metricOf = (row: number) => panel.metrics[alike ? 0 : row] as Metric;
  const all = useMemo(() => extent(panel.values.flat()), [panel.values]);
  const ground = (row: number, value: number) => {
    // One colour scale over all rows would hide the best of a row whose values are all low.
    const [low, high] = (alike && (panel.band || panel.diverging_at !== null) ? all : extent(panel.values[row] ?? [])) ?? [0, 1];
    if (panel.diverging_at !== null) {
      const most = Math.max(Math.abs(high - panel.diverging_at), Math.abs(low - panel.diverging_at)) || 1;
      const far = (value - panel.diverging_at) / most;
      return mix(far < 0 ? ends.minus : ends.plus, ends.none, Math.abs(far));
    }
    const share = (value - low) / (high - low || 1);
    // The strongest colour stops short of the theme's end: a whole row of it would shout.
    return mix(ends.much, ends.none, 0.75 * (metricOf(row).better === "down" ? 1 - share : share));
  };
  const forms = panel.rows.map((_, r) => inOneForm([...(panel.values[r] ?? []), ...(panel.low?.[r] ?? []), ...(panel.high?.[r] ?? [])], metricOf(r).unit, true));
  return (
    <>
      <p className="quiet small">{legend(panel)}</p>
      <Sheet label={`Table: ${panel.title}`} look="bare">
        <table className="table matrix">
          <thead>
            <tr>
              <td />
              {measures && <th scope="col">Measure</th>}
              {panel.columns.map((column) => (
                <th key={column} scope="col" className="num">
                  {column === panel.ours && <i className="diamond" aria-hidden="true" />} {column}
                </th>
              ))}
              {compared && <th scope="col" className="against">{panel.ours} against the best of the others</th>}
            </tr>
          </thead>
          <tbody>
            {panel.rows.map((row, r) => (
              <tr key={row}>
                <th scope="row" title={directed(metricOf(r))}>{row}{!alike && !measures && <small className="quiet"> {direction(metricOf(r))}</small>}</th>
                {measures && (
                  <td className="soft nowrap">
                    {named(metricOf(r))} {direction(metricOf(r))}
                  </td>
                )}
                {panel.columns.map((column, c) => {
                  const value = panel.values[r]?.[c] ?? null;
                  if (value === null) return <td key={column} className="num quiet">{NONE}</td>;
                  const told = forms[r] ?? number;
                  const colour = ground(r, value);
                  const [low, high] = [panel.low?.[r]?.[c] ?? null, panel.high?.[r]?.[c] ?? null];
                  return (
                    <td key={column} className="num cell" style={{ background: css(colour), color: css(inkOn(colour)) }}>
                      {column === panel.ours ? <b>{told(value)}</b> : told(value)}
                      {panel.band && value < panel.band[0] && <span title="below the band"> ▾</span>}
                      {panel.band && value > panel.band[1] && <span title="above the band"> ▴</span>}
                      {low !== null && high !== null && <small className="nowrap"><br />{metricOf(r).unit === "share" ? `${hundredths(low)} … ${hundredths(high)} %` : `${told(low)} … ${told(high)}`}</small>}
                    </td>
                  );
                })}
                {compared && <td className={panel.columns.length > 8 ? "against" : "nowrap"}>{against(panel, r, metricOf(r))}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </Sheet>
    </>
  );
}

/** The end of an interval of shares in per cent. */
const hundredths = (share: number) => (100 * share).toFixed(2).replace(/^-(?!0\.00$)/, "−").replace(/^-/, "");

const direction = ({ better }: Metric) => (better ? `(${better === "up" ? "higher" : "lower"} is better)` : "");

function legend(panel: Matrix): string {
  const [metric] = panel.metrics;
  const parts = panel.metrics.length === 1 && metric ? [named(metric)] : [];
  if (panel.diverging_at !== null) parts.push(`colours change sides at ${number(panel.diverging_at)}`);
  else if (panel.metrics.some((one) => one.better)) parts.push(`the stronger the colour${panel.band ? "" : " in a row"}, the better`);
  const [low, high] = panel.band ?? [-Infinity, Infinity];
  const outside = panel.values.flat().some((value) => value !== null && (value < low || value > high));
  if (panel.band) parts.push(`values are to lie from ${number(low)} to ${number(high)}${outside ? "; ▾ is below, ▴ above" : ""}`);
  return parts.join("; ");
}

/** "3.1 % better than code". */
function against(panel: Matrix, row: number, metric: Metric): string {
  const sign = metric.better === "up" ? 1 : -1;
  const values = panel.values[row] ?? [];
  const ours = values[panel.columns.indexOf(panel.ours ?? "")] ?? null;
  const others = panel.columns.flatMap((name, index): [string, number][] => {
    const value = values[index] ?? null;
    return name === panel.ours || value === null ? [] : [[name, value]];
  });
  const best = others.sort((a, b) => sign * (b[1] - a[1]))[0];
  if (!best || ours === null) return NONE;
  const [name, value] = best;
  const word = (more: number) => `${more > 0 ? "better" : "worse"} than ${name}`;
  // Shares are compared by their difference: a share of a share, as of a gain near 0, says nothing.
  if (metric.unit === "share") {
    const points = 100 * sign * (ours - value);
    return Math.abs(points) < 0.005 ? `as good as ${name}` : `${Math.abs(points).toFixed(2)} points ${word(points)}`;
  }
  if (value === 0) return ours === 0 ? `as good as ${name}` : word(sign * ours);
  const share = (100 * sign * (ours - value)) / Math.abs(value);
  if (Math.abs(share) < 0.05) return `as good as ${name}`;
  return `${Math.abs(share).toFixed(1)} % ${word(share)}`;
}
