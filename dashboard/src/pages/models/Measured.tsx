/** What runs have measured of a model, with intervals where the log has the items. */
import type { ModelMeasurements, OwnedModel } from "../../api/types";
import { NONE, number, plural, score, words } from "../../lib/format";
import { href } from "../../lib/router";
import { Sheet } from "../../ui/Sheet";

/** A run by its name, with its id as a tooltip. */
export function RunLink({ run }: { run: { run: string; run_name: string } }) {
  return (
    <a className="mono" href={href(["runs", run.run])} title={run.run}>
      {run.run_name}
    </a>
  );
}

/** What was said when the model was registered: no items behind it, so no interval. */
function Registered({ metrics }: { metrics: OwnedModel["metrics"] }) {
  return (
    <table className="table">
      <caption>As registered; the log has no items of these figures, so they have no interval.</caption>
      <thead>
        <tr>
          <th scope="col">Figure</th>
          <th scope="col" className="num">Value</th>
        </tr>
      </thead>
      <tbody>
        {Object.keys(metrics).sort().map((name) => (
          <tr key={name}>
            <th scope="row">{words(name)}</th>
            <td className="num">{score(metrics[name])}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Measured({ model, across }: { model: OwnedModel; across: ModelMeasurements }) {
  const seen = across.runs.filter((one) => one.measurements.length > 0);
  const again = across.runs.filter((one) => one.again > 0);
  const others = across.runs.filter((one) => one.measurements.length === 0 && one.again === 0);
  const registered = model.run === null && Object.keys(model.metrics).length > 0;
  return (
    <>
      {seen.length === 0 && !registered && <p className="soft">Nothing was measured of it.</p>}
      {registered && <Registered metrics={model.metrics} />}
      {seen.map((one) => (
        <InRun key={one.run} one={one} />
      ))}
      {seen.length > 0 && (
        <p className="soft small">
          Intervals are the middle 95 % of a bootstrap over the items. Figures of different runs are on different items.
        </p>
      )}
      {again.length > 0 && (
        <p className="soft small">
          Equal values were measured again in{" "}
          {again.map((one, place) => (
            <span key={one.run}>
              {place > 0 && ", "}
              <RunLink run={one} /> ({number(one.again)})
            </span>
          ))}
          .
        </p>
      )}
      {others.length > 0 && (
        <p className="soft small">
          Not measured in{" "}
          {others.map((one, place) => (
            <span key={one.run}>
              {place > 0 && ", "}
              <RunLink run={one} />
            </span>
          ))}
          .
        </p>
      )}
      {across.total > across.runs.length && (
        <p className="soft small">{plural(across.total - across.runs.length, "older run")} not read.</p>
      )}
    </>
  );
}

function InRun({ one }: { one: ModelMeasurements["runs"][number] }) {
  return (
    <Sheet label={`Measurements in run ${one.run_name}`} look="bare">
      <table className="table">
        <caption>
          {one.made ? "Made and measured" : "Measured"} in run <RunLink run={one} /> ({one.kind})
        </caption>
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col">Domain</th>
            <th scope="col">Slice</th>
            <th scope="col" className="num">Value</th>
            <th scope="col" className="num">95 % interval</th>
            <th scope="col" className="num">Items</th>
          </tr>
        </thead>
        <tbody>
          {one.measurements.map(({ name, domain, slice, figure }) => (
            <tr key={`${name} ${domain} ${slice}`}>
              <th scope="row">{name}</th>
              <td>{domain || (figure.n === null ? NONE : "all")}</td>
              <td>{slice || NONE}</td>
              <td className="num">{value(figure.value)}</td>
              <td className="num">
                {figure.low === null || figure.high === null ? "no items, no interval" : `${score(figure.low)} … ${score(figure.high)}`}
              </td>
              <td className="num">{figure.n === null ? NONE : number(figure.n)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}

/** Bytes are whole numbers, all other figures are small. */
function value(given: number): string {
  return Number.isInteger(given) && given >= 1000 ? number(given) : score(given);
}
