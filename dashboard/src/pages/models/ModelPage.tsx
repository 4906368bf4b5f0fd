/** One model: what it measures, how it was made, where it is used from. */
import { useState } from "react";
import { ApiError, save, send } from "../../api/client";
import { invalidate } from "../../api/queries";
import type { ModelFiles, ModelLineage, ModelMeasurements, OwnedModel } from "../../api/types";
import { bytes, NONE, number } from "../../lib/format";
import { GraphPanel } from "../../panels/graph/GraphPanel";
import { useMaySubmit, useOwns } from "../../lib/currentUser";
import { type Resource, useResource, useTitle } from "../../lib/hooks";
import { href } from "../../lib/router";
import { Coded } from "../../ui/Coded";
import { Id } from "../../ui/CopyButton";
import { DescribeDialog } from "../../ui/forms/DescribeDialog";
import { Icon } from "../../ui/Icon";
import { Empty, Loaded } from "../../ui/Messages";
import { Panel } from "../../ui/Panel";
import { Time } from "../../ui/Time";
import { Download, Loading, modelPath, useAct, useFiles } from "./Download";
import { Measured, RunLink } from "./Measured";
import { Sheet } from "../../ui/Sheet";

/** The place of a model that its run was given. */
const GIVEN = "given";

export default function ModelPage({ id }: { id: string }) {
  const answer = useResource<OwnedModel>(modelPath(id));
  useTitle(answer.data?.name ?? "Model");
  if (answer.data === undefined && answer.error instanceof ApiError && answer.error.status === 404) {
    return (
      <Empty title="There is no such model">
        <p className="sentence"><Coded text={answer.error.message} /></p>
        <a href="#/models">All models</a>
      </Empty>
    );
  }
  return <Loaded of={answer}>{(model) => <Told model={model} />}</Loaded>;
}

function Told({ model }: { model: OwnedModel }) {
  const maySubmit = useMaySubmit();
  const own = useOwns()(model.owner);
  const [describing, setDescribing] = useState(false);
  const measured = useResource<ModelMeasurements>(`models/${model.id}/measurements`);
  const files = useFiles(model.id);
  const made = useResource<ModelLineage>(`models/${model.id}/lineage`);
  return (
    <>
      <header className="page-head">
        <h1>{model.name}</h1>
        <span className={`tag ${model.kind === "champion" ? "champion" : ""}`}>{model.kind}</span>
        {own && (
          <button type="button" className="button plain small" onClick={() => setDescribing(true)} aria-label="Change note and tags">
            <Icon name="pencil" />
          </button>
        )}
        {model.tags.map((tag) => (
          <a key={tag} className="tag" href={href(["models"], { tag })}>
            {tag}
          </a>
        ))}
        {maySubmit && (
          <span className="buttons end">
            <a className="button" href={href(["new"], { kind: "evomerge", source: model.id })}>
              Merge it in a new run
            </a>
            <a className="button" href={href(["new"], { kind: "cognate", base: model.id })}>
              Train specialists of it
            </a>
            <a className="button" href={href(["new"], { kind: "bitnet", source: model.id })}>
              Make it ternary
            </a>
            <a className="button" href={href(["new"], { kind: "student", source: model.id })}>
              Train a student of it
            </a>
            <a className="button" href={href(["new"], { kind: "compression", source: model.id })}>
              Compress it
            </a>
            <a className="button" href={href(["new"], { kind: "measure", source: model.id })}>
              Measure it
            </a>
          </span>
        )}
      </header>
      {model.note && <p className="soft">{model.note}</p>}
      {describing && (
        <DescribeDialog
          title={`Describe ${model.name}`}
          words={{ note: model.note, tags: model.tags }}
          onClose={() => setDescribing(false)}
          onSave={async (changes) => {
            await send(modelPath(model.id), "PATCH", changes);
            invalidate((path) => path.startsWith("models"));
          }}
        />
      )}
      <div className="panels">
        <Panel title="Model">
          <dl className="facts">
            <dt>weights</dt>
            <dd>
              <Id id={model.digest} what="digest" />
            </dd>
            <dt>parameters</dt>
            <dd>{number(model.parameters)}</dd>
            <dt>size</dt>
            <dd>{bytes(files.data?.bytes ?? model.bytes)}</dd>
            <dt>owner</dt>
            <dd>{model.owner || NONE}</dd>
            <dt>folder</dt>
            <dd className="mono">{files.data?.folder ?? model.path ?? NONE}</dd>
            {model.origin.file && (
              <>
                <dt>from file</dt>
                <dd title={`BLAKE3 ${model.origin.digest}`}>
                  <span className="mono">{model.origin.file}</span>, GGUF {model.origin.type}
                </dd>
              </>
            )}
            <dt>from run</dt>
            <dd>
              {model.run ? (
                <a className="mono" href={href(["runs", model.run])} title={model.run}>
                  {model.run_name ?? model.run}
                </a>
              ) : (
                NONE
              )}
            </dd>
            <dt>registered</dt>
            <dd>
              <Time at={model.registered_at} />
            </dd>
            <dt>in commands</dt>
            <dd>
              <Id id={model.id} whole what="name for commands" />
            </dd>
          </dl>
        </Panel>
        <Panel title="Files">
          <Loaded of={files}>{() => <Files model={model} files={files} />}</Loaded>
        </Panel>
        <Panel title="Measurements">
          <Loaded of={measured}>{(across) => <Measured model={model} across={across} />}</Loaded>
        </Panel>
        <Panel title="How it was made">
          <Loaded of={made}>{(lineage) => <Made lineage={lineage} />}</Loaded>
        </Panel>
      </div>
    </>
  );
}

/** The files of its folder on the server; those who may start runs may take them. */
function Files({ model, files }: { model: OwnedModel; files: Resource<ModelFiles> }) {
  const mayTake = useMaySubmit();
  const [act, failure] = useAct();
  const found = files.data;
  if (!found) return null;
  return (
    <div className="stack">
      <Download id={model.id} files={files} />
      {found.files.length > 0 && (
        <Sheet label="Files of the model" look="bare">
          <table className="table">
            <caption className="hidden-text">Files of the model</caption>
            <thead>
              <tr>
                <th scope="col">File</th>
                <th scope="col" className="num">Size</th>
                {mayTake && <th scope="col">Take</th>}
              </tr>
            </thead>
            <tbody>
              {found.files.map((file) => (
                <tr key={file.name}>
                  <th scope="row" className="mono">{file.name}</th>
                  <td className="num">{bytes(file.bytes)}</td>
                  {mayTake && (
                    <td>
                      <button
                        type="button"
                        className="button plain small"
                        aria-label={`Download ${file.name}`}
                        onClick={() => act(() => save(model.id, `files/${encodeURIComponent(file.name)}`))}
                      >
                        Download
                      </button>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </Sheet>
      )}
      <p role="status" className="quiet small">{failure}</p>
      <Loading lines={found.load} />
    </div>
  );
}

function Made({ lineage }: { lineage: ModelLineage }) {
  if (lineage.runs.length === 0) return <p className="soft">No run of this log made it.</p>;
  return (
    <>
      {lineage.tree && lineage.tree.nodes.length > 1 && <GraphPanel panel={lineage.tree} />}
      {lineage.runs.map((one) => (
        <Sheet key={one.run} label={`Models of run ${one.run_name}`} look="bare">
        <table className="table">
          <caption>
            In run <RunLink run={one} />
          </caption>
          <thead>
            <tr>
              <th scope="col">Model</th>
              <th scope="col">Made by</th>
              <th scope="col">Recipe</th>
            </tr>
          </thead>
          <tbody>
            {one.ancestors.map((ancestor) => (
              <tr key={ancestor.recipe_id}>
                <th scope="row">{ancestor.place === GIVEN ? ancestor.words : ancestor.place}</th>
                <td>{ancestor.place === GIVEN ? GIVEN : ancestor.words}</td>
                <td>
                  <Id id={ancestor.recipe_id} what="recipe" />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        </Sheet>
      ))}
    </>
  );
}
