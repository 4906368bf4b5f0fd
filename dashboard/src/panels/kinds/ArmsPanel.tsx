/** What the run made beside the honest alternatives: values, leads with their intervals, verdicts. */
import type { Arm, Arms } from "../../api/types";
import { extent, labelled, linear, padded, type Scale } from "../../lib/scale";
import { NONE, number } from "../../lib/format";
import { directed, inOneForm, lead, named, valued, VERDICTS } from "../words";
import { Sheet } from "../../ui/Sheet";

const WIDE = 220;
const AXIS = 30;

export function ArmsPanel({ panel }: { panel: Arms }) {
  const leads = panel.arms.flatMap((arm) => (arm.lead ? [arm.lead] : []));
  const told = inOneForm(panel.arms.flatMap((arm) => [arm.value, arm.low, arm.high]), panel.metric.unit);
  const hasCost = panel.cost !== null && panel.arms.some((arm) => arm.cost !== null);
  const hasItems = panel.arms.some((arm) => arm.n !== null);
  const ends = leads.length > 0
    ? [0, panel.limit, ...leads.flatMap((one) => [one.low, one.high, one.value])]
    : panel.arms.flatMap((arm) => [arm.low, arm.high, arm.value]);
  const x = linear(padded(extent(ends) ?? [0, 1], 0.06), [6, WIDE - 6]);
  const line = leads.length > 0 ? 0 : null;
  return (
    <Sheet label={`Table: ${panel.title}`} look="bare">
      <table className="table arms">
        <thead>
          <tr>
            <th scope="col">Arm</th>
            <th scope="col">Kind</th>
            <th scope="col" className="num" title={directed(panel.metric)}>{named(panel.metric)}</th>
            {hasItems && <th scope="col" className="num">Items</th>}
            {leads.length > 0 && <th scope="col" className="num">Lead of {panel.ours}</th>}
            <th scope="col">{leads.length > 0 ? "95 % interval of the lead" : "95 % interval"}</th>
            {leads.length > 0 && <th scope="col">{panel.ours}</th>}
            {hasCost && panel.cost && <th scope="col" className="num">{named(panel.cost)}</th>}
          </tr>
        </thead>
        <tbody>
          {panel.arms.map((arm) => (
            <tr key={arm.name}>
              <th scope="row">
                {arm.name === panel.ours && <i className="diamond" aria-hidden="true" />} {arm.name}
              </th>
              <td className="soft">{[arm.group, arm.name === panel.baseline ? "to beat" : ""].filter(Boolean).join(", ")}</td>
              <td className="num nowrap">
                {arm.name === panel.ours ? <b>{told(arm.value)}</b> : told(arm.value)}
                {leads.length > 0 && arm.low !== null && arm.high !== null && <small className="quiet">{` ${told(arm.low)} … ${told(arm.high)}`}</small>}
              </td>
              {hasItems && <td className="num">{number(arm.n)}</td>}
              {leads.length > 0 && <td className="num nowrap">
                {arm.lead ? lead(arm.lead.value) : NONE}
                {arm.lead && <small className="quiet">{` ${lead(arm.lead.low)} … ${lead(arm.lead.high)}`}</small>}
              </td>}
              <td className="interval-cell">
                <Interval arm={arm} x={x} zero={line} limit={panel.limit} ofLead={leads.length > 0} />
              </td>
              {leads.length > 0 && <td className="nowrap">{arm.lead && <Verdict verdict={arm.lead.verdict} />}</td>}
              {hasCost && <td className="num">{valued(arm.cost, panel.cost?.unit ?? "")}</td>}
            </tr>
          ))}
        </tbody>
        <tfoot aria-hidden="true">
          <tr>
            <td colSpan={3 + Number(hasItems) + Number(leads.length > 0)} />
            <td className="interval-cell">
              <svg className="interval-axis" width={WIDE} height={AXIS}>
                {labelled(x, 3).map((tick) => (
                  <text key={tick.at} x={x(tick.at)} y="12" textAnchor="middle">
                    {tick.label}
                  </text>
                ))}
                {panel.limit !== null && (
                  <text x={x(panel.limit)} y="26" textAnchor="middle">
                    limit {number(panel.limit)}
                  </text>
                )}
              </svg>
            </td>
            <td colSpan={Number(leads.length > 0) + Number(hasCost)} />
          </tr>
        </tfoot>
      </table>
    </Sheet>
  );
}

interface IntervalProps {
  arm: Arm;
  x: Scale;
  zero: number | null;
  limit: number | null;
  ofLead: boolean;
}

function Interval({ arm, x, zero, limit, ofLead }: IntervalProps) {
  const { value, low, high } = ofLead ? (arm.lead ?? { value: null, low: null, high: null }) : arm;
  if (value === null) return null;
  const told = low === null || high === null ? number(value) : `${ofLead ? lead(low) : number(low)} … ${ofLead ? lead(high) : number(high)}`;
  return (
    <svg className="interval" data-verdict={ofLead ? arm.lead?.verdict : undefined} width={WIDE} height="18" role="img" aria-label={told}>
      <title>{told}</title>
      {zero !== null && <line className="zero" x1={x(zero)} x2={x(zero)} y1="0" y2="18" />}
      {limit !== null && <line className="zero" strokeDasharray="2 3" x1={x(limit)} x2={x(limit)} y1="0" y2="18" />}
      {low !== null && high !== null && <line x1={x(low)} x2={x(high)} y1="9" y2="9" />}
      <circle cx={x(value)} cy="9" r="3.5" />
    </svg>
  );
}

function Verdict({ verdict }: { verdict: keyof typeof VERDICTS }) {
  const { mark, word } = VERDICTS[verdict];
  return (
    <span className={{ better: "beaten", worse: "lost", level: "quiet" }[verdict]}>
      <span aria-hidden="true">{mark}</span> {word}
    </span>
  );
}
