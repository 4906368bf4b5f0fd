/** The registry of models. */
import { useState } from "react";
import { withQuery } from "../../api/client";
import type { Model, ModelKind, ModelList } from "../../api/types";
import { bytes, NONE, number, plural, score } from "../../lib/format";
import { useDebounced, useResource, useTitle } from "../../lib/hooks";
import { useMaySubmit, useMe } from "../../lib/currentUser";
import { go, href, type Route } from "../../lib/router";
import { Id } from "../../ui/CopyButton";
import { Empty, Loaded } from "../../ui/Messages";
import { Time } from "../../ui/Time";
import { RegisterDialog } from "./RegisterDialog";
import { RemoveDialog } from "./RemoveDialog";
import { Sheet } from "../../ui/Sheet";

const KINDS: ModelKind[] = ["source", "base", "specialist", "champion", "merge"];

export default function ModelsPage({ route }: { route: Route }) {
  const kind = route.query.get("kind") ?? "";
  const tag = route.query.get("tag") ?? "";
  const [text, setText] = useState("");
  const q = useDebounced(text.trim(), 250);
  const [dialog, setDialog] = useState<"register" | Model | null>(null);
  const maySubmit = useMaySubmit();
  const admin = useMe()?.role === "admin";
  const answer = useResource<ModelList>(withQuery("models", { kind, q, tag }));
  const done = () => {
    setDialog(null);
    void answer.reload();
  };
  useTitle("Models");
  return (
    <>
      <header className="page-head">
        <h1>Models</h1>
        <span className="soft" role="status">
          {answer.data && plural(answer.data.total, "model")}
        </span>
        {maySubmit && (
          <button type="button" className="button primary end" onClick={() => setDialog("register")}>
            Register
          </button>
        )}
      </header>
      <div className="filters">
        <input className="input" type="search" aria-label="Search models" placeholder="Search" value={text} onChange={(event) => setText(event.target.value)} />
        <select className="select" aria-label="Kind" value={kind} onChange={(event) => go(href(["models"], { kind: event.target.value, tag }))}>
          <option value="">Every kind</option>
          {KINDS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        {tag && (
          <>
            <span className="tag">{tag}</span>
            <a className="button plain" href={href(["models"], { kind })}>
              Clear
            </a>
          </>
        )}
      </div>
      <Loaded of={answer}>
        {(data) => (
          <div className={answer.stale ? "stale" : undefined}>
            <Table models={data.models} filtered={Boolean(kind || q || tag)} onRemove={admin ? setDialog : null} />
          </div>
        )}
      </Loaded>
      {dialog === "register" && <RegisterDialog onClose={() => setDialog(null)} onDone={done} />}
      {dialog !== null && dialog !== "register" && <RemoveDialog model={dialog} onClose={() => setDialog(null)} onDone={done} />}
    </>
  );
}

/** Bits per byte of the newest measurement, or else the fitness that a merging run gives its champion. */
function measured({ measured, test }: Model["metrics"]): string {
  if (measured !== undefined) return `${score(measured)} bits per byte ↓`;
  return test === undefined ? NONE : `${score(test)} fitness`;
}

interface TableProps {
  models: Model[];
  filtered: boolean;
  onRemove: ((model: Model) => void) | null;
}

function Table({ models, filtered, onRemove }: TableProps) {
  if (models.length === 0) {
    return (
      <div className="sheet">
        <Empty title={filtered ? "No matching models" : "No models yet"}>
          <p>Sources and champions of runs come by themselves; others are registered.</p>
        </Empty>
      </div>
    );
  }
  const sized = models.some((model) => model.bytes !== null);
  return (
    <Sheet label="Models">
      <table className="table">
        <thead>
          <tr>
            {["Model", "Kind", "Weights", "From run"].map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
            <th scope="col" className="num">Parameters</th>
            {sized && <th scope="col" className="num">Size</th>}
            <th scope="col" className="num" title="The newest measurement on the test slice; fitness: 1 is the best source, higher is better">Measured on test</th>
            <th scope="col">Registered</th>
            {onRemove && (
              <th scope="col">
                <span className="hidden-text">Remove</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {models.map((model) => (
            <tr key={model.id}>
              <th scope="row" title={model.path ?? undefined}>
                <a href={href(["models", model.id])}>{model.name}</a>
                {model.path && <span className="under quiet mono">{model.path}</span>}
                {model.origin.file && <span className="under quiet">from GGUF {model.origin.type}</span>}
              </th>
              <td>
                <span className={`tag ${model.kind === "champion" ? "champion" : ""}`}>{model.kind}</span>
              </td>
              <td>
                <Id id={model.digest} what="digest" />
              </td>
              <td>
                {model.run ? (
                  <a className="mono nowrap" href={href(["runs", model.run])} title={model.run}>
                    {model.run_name ?? model.run}
                  </a>
                ) : (
                  <span className="quiet">–</span>
                )}
              </td>
              <td className="num">{number(model.parameters)}</td>
              {sized && <td className="num nowrap">{bytes(model.bytes)}</td>}
              <td className="num nowrap">{measured(model.metrics)}</td>
              <td>
                <Time at={model.registered_at} />
              </td>
              {onRemove && (
                <td className="num">
                  {model.run === null && (
                    <button type="button" className="button plain small" onClick={() => onRemove(model)}>
                      Remove
                    </button>
                  )}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}
