/** The head of a run of any kind: its result with interval and items, how far it is, further facts. */
import type { Head, Result } from "../api/types";
import { number, plural, score, short } from "../lib/format";
import { between, lead, measured, said, VERDICTS } from "./words";

const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

export function Headline({ head }: { head: Head }) {
  return (
    <>
    {head.verdict && <p className="verdict">{head.verdict}</p>}
    <dl className="headline">
      {(head.result || !ENDED.has(head.status)) && (
        <div className="headline-champion">
          <dt>
            <i className="diamond" aria-hidden="true" /> {head.result ? titleOf(head.result) : "Result"}
          </dt>
          <dd>{head.result ? <Told result={head.result} /> : <span className="quiet">none yet</span>}</dd>
        </div>
      )}
      {head.of !== 0 && <Fact name={plural(2, head.unit).slice(2)} value={number(head.done)} more={head.of === null ? "" : `of ${number(head.of)}`} />}
      {head.facts.filter((fact) => fact.name !== "reason").map((fact) => (  // the page says it in a line of its own
        <Fact key={fact.name} name={fact.name} value={said(fact.unit) ? measured(fact.value, fact.unit) : measured(fact.value, "")} more={said(fact.unit) ? "" : fact.unit} />
      ))}
    </dl>
    </>
  );
}

/** The name of the model stands beneath the value. */
function titleOf({ name, called, metric }: Result): string {
  const title = called ? name.replace(`${called}, `, "") : name;
  return title === metric.name ? title : `${title}: ${metric.name}`;
}

function Told({ result }: { result: Result }) {
  const { metric, value, low, high, on, n, over, model, called } = result;
  const unit = measured(value, metric.unit).endsWith(` ${metric.unit}`) ? metric.unit : "";
  const range = low !== null && high !== null ? `95 % interval ${between(low, high, metric.unit)}` : "";
  const stands = [unit, range, metric.better ? `${metric.better === "up" ? "higher" : "lower"} is better` : ""].filter(Boolean).join("; ");
  const where = [on && `on the ${on}`.replace("the the", "the"), n !== null ? `${number(n)} ${result.items}` : ""].filter(Boolean).join(", ");
  return (
    <>
      <b>{unit ? score(value) : measured(value, metric.unit)}</b>
      <span className="headline-why quiet">
        {stands && <span>{stands}</span>}
        {where && <span>{where}</span>}
        {result.lead && (
          <span>
            {lead(result.lead.value)} over {over}, 95 % interval {lead(result.lead.low)} … {lead(result.lead.high)}: {VERDICTS[result.lead.verdict].word}
          </span>
        )}
        {model && <span>{called ? `“${called}” among the models` : <>model <span className="mono">{short(model)}</span></>}</span>}
      </span>
    </>
  );
}

/** A fact with more letters is a sentence: it wraps, in plain letters. */
const LONG = 40;

export function Fact({ name, value, more }: { name: string; value: string; more: string }) {
  return (
    <div className={value.length > LONG ? "headline-said" : undefined}>
      <dt>{name}</dt>
      <dd>
        <b>{value}</b>
        <span className="quiet">{more}</span>
      </dd>
    </div>
  );
}
