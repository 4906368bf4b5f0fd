/** A candidate: its scores, its kin, its recipe as JSON and YAML. */
import { useState } from "react";
import type { Candidate } from "../../../api/types";
import { writeJson } from "../../../lib/bigJson";
import { number, score, short } from "../../../lib/format";
import { useResource } from "../../../lib/hooks";
import { CopyButton, Id } from "../../../ui/CopyButton";
import { Dialog } from "../../../ui/forms/Dialog";
import { Loaded } from "../../../ui/Messages";
import { runPath, useMerging } from "../context";

export function CandidateDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { live, at } = useMerging();
  const answer = useResource<Candidate>(runPath(live.run, `/candidates/${encodeURIComponent(id)}`, { at }));
  return (
    <Dialog wide title={answer.data?.name ?? `Candidate ${short(id)}`} onClose={onClose}>
      <Loaded of={answer}>{(data) => <Body data={data} />}</Loaded>
    </Dialog>
  );
}

function Body({ data }: { data: Candidate }) {
  const { live, open } = useMerging();
  const [form, setForm] = useState<"json" | "yaml">("json");
  const json = writeJson(data.recipe, 2);
  const text = form === "yaml" && data.yaml ? data.yaml : json;
  const named = new Map([...live.sources, ...(live.base ? [live.base] : [])].map((one) => [one.recipe_id, one.name]));
  const kin = (ids: string[]) =>
    ids.map((one) => (
      <button key={one} type="button" className="link mono" onClick={() => open(one)}>
        {named.get(one) ?? short(one)}
      </button>
    ));
  return (
    <>
      <dl className="facts">
        <dt>recipe</dt>
        <dd>
          <Id id={data.recipe_id} what="recipe id" />
        </dd>
        {data.digest && (
          <>
            <dt>weights</dt>
            <dd>
              <Id id={data.digest} what="digest" />
            </dd>
          </>
        )}
        <dt>made by</dt>
        <dd>
          {data.what}
          {data.where ? `, ${data.where}` : ""}
        </dd>
        {data.parents.length > 0 && (
          <>
            <dt>parents</dt>
            <dd className="kin">{kin(data.parents)}</dd>
          </>
        )}
        {data.children.length > 0 && (
          <>
            <dt>children</dt>
            <dd className="kin">{kin(data.children)}</dd>
          </>
        )}
      </dl>
      {data.evaluations.length > 0 && (
        <div className="sheet" tabIndex={0} role="region" aria-label="Evaluations">
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Slice</th>
                <th scope="col" className="num">Generation</th>
                <th scope="col" className="num">Fitness</th>
                <th scope="col" className="num">Quality</th>
              </tr>
            </thead>
            <tbody>
              {data.evaluations.map((one) => (
                <tr key={`${one.slice}${one.generation}`}>
                  <th scope="row">{one.slice}</th>
                  <td className="num">{one.generation ?? "–"}</td>
                  <td className="num">{one.stopped ? "ended early" : score(one.fitness)}</td>
                  <td className="num">{score(one.quality)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {Object.keys(data.genes).length > 0 && (
        <details>
          <summary>Genes ({Object.keys(data.genes).length})</summary>
          <dl className="facts genes">
            {Object.entries(data.genes).map(([name, value]) => (
              <div key={name} className="fact-pair">
                <dt className="mono">{name}</dt>
                <dd>{number(value)}</dd>
              </div>
            ))}
          </dl>
        </details>
      )}
      <section className="recipe">
        <header>
          <h3>Recipe</h3>
          <div className="buttons" role="group" aria-label="Form of the recipe">
            <button type="button" className="button small" aria-pressed={form === "json"} onClick={() => setForm("json")}>
              JSON
            </button>
            <button type="button" className="button small" aria-pressed={form === "yaml"} disabled={!data.yaml} onClick={() => setForm("yaml")}
              title={data.yaml ? undefined : "This recipe cannot be expressed as one config"}>
              YAML
            </button>
            <CopyButton text={text} label="Copy" />
          </div>
        </header>
        <pre tabIndex={0} aria-label="Recipe">{text}</pre>
      </section>
    </>
  );
}
