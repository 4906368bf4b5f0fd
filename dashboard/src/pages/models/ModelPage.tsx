/** One model: what it measures, how it was made, where it is used from. */
import type { Model, ModelLineage } from "../../api/types";
import { bytes, NONE, number, score, words } from "../../lib/format";
import { GraphPanel } from "../../panels/graph/GraphPanel";
import { useMaySubmit } from "../../lib/currentUser";
import { useResource, useTitle } from "../../lib/hooks";
import { href } from "../../lib/router";
import { Id } from "../../ui/CopyButton";
import { Loaded } from "../../ui/Messages";
import { Panel } from "../../ui/Panel";
import { Time } from "../../ui/Time";

export default function ModelPage({ id }: { id: string }) {
  const answer = useResource<Model>(`models/${encodeURIComponent(id)}`);
  useTitle(answer.data?.name ?? "Model");
  return <Loaded of={answer}>{(model) => <Told model={model} />}</Loaded>;
}

function Told({ model }: { model: Model }) {
  const maySubmit = useMaySubmit();
  const made = useResource<ModelLineage>(`models/${model.id}/lineage`);
  return (
    <>
      <header className="page-head">
        <h1>{model.name}</h1>
        <span className={`tag ${model.kind === "champion" ? "champion" : ""}`}>{model.kind}</span>
        {maySubmit && (
          <span className="buttons end">
            <a className="button" href={href(["new"], { kind: "evomerge", source: model.id })}>
              Merge it in a new run
            </a>
            <a className="button" href={href(["new"], { kind: "cognate", base: model.id })}>
              Train specialists of it
            </a>
          </span>
        )}
      </header>
      <div className="panels">
        <Panel title="Model" span={7}>
          <dl className="facts">
            <dt>weights</dt>
            <dd>
              <Id id={model.digest} what="digest" />
            </dd>
            <dt>parameters</dt>
            <dd>{number(model.parameters)}</dd>
            <dt>size</dt>
            <dd>{bytes(model.bytes)}</dd>
            <dt>folder</dt>
            <dd className="mono">{model.path ?? NONE}</dd>
            <dt>from run</dt>
            <dd>
              {model.run ? (
                <a className="mono" href={href(["runs", model.run])}>
                  {model.run}
                </a>
              ) : (
                NONE
              )}
            </dd>
            <dt>registered</dt>
            <dd>
              <Time at={model.registered_at} />
            </dd>
            <dt>at a terminal</dt>
            <dd className="mono">{model.id}</dd>
          </dl>
        </Panel>
        <Measured metrics={model.metrics} run={model.run} />
        <Panel title="How it was made">
          <Loaded of={made}>{(lineage) => <Made lineage={lineage} />}</Loaded>
        </Panel>
      </div>
    </>
  );
}

function Measured({ metrics, run }: { metrics: Model["metrics"]; run: string | null }) {
  const names = Object.keys(metrics).sort();
  return (
    <Panel title="What it measures" span={5}>
      {names.length === 0 ? (
        <p className="soft">Nothing was measured of it.</p>
      ) : (
        <table className="table">
          <thead>
            <tr>
              <th scope="col">Figure</th>
              <th scope="col" className="num">Value</th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name}>
                <th scope="row">{words(name)}</th>
                <td className="num">{score(metrics[name])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {run && (
        <p className="soft small">
          Intervals and items are on the page of run <a className="mono" href={href(["runs", run])}>{run}</a>.
        </p>
      )}
    </Panel>
  );
}

function Made({ lineage }: { lineage: ModelLineage }) {
  if (lineage.runs.length === 0) return <p className="soft">No run of this log made it.</p>;
  return (
    <>
      {lineage.tree && lineage.tree.nodes.length > 1 && <GraphPanel panel={lineage.tree} />}
      {lineage.runs.map((one) => (
        <div key={`${one.run} ${one.ancestors[0]?.recipe_id}`} className="sheet bare" tabIndex={0} role="region" aria-label={`${one.ancestors[0]?.place} in run ${one.run}`}>
        <table className="table">
          <caption>
            {one.ancestors[0]?.place} in run <a className="mono" href={href(["runs", one.run])}>{one.run}</a>
          </caption>
          <thead>
            <tr>
              <th scope="col">Recipe</th>
              <th scope="col">Model</th>
              <th scope="col">Made by</th>
            </tr>
          </thead>
          <tbody>
            {one.ancestors.map((ancestor) => (
              <tr key={ancestor.recipe_id}>
                <td>
                  <Id id={ancestor.recipe_id} what="recipe" />
                </td>
                <th scope="row">{ancestor.place}</th>
                <td>{ancestor.words}</td>
              </tr>
            ))}
          </tbody>
        </table>
        </div>
      ))}
    </>
  );
}
