/** A form for a new run, checked by the server as one types. */
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, send, wrongFields } from "../../api/client";
import type { Again, Kinds, Made, ModelList } from "../../api/types";
import { useResource, useTitle } from "../../lib/hooks";
import { useMe, useMaySubmit } from "../../lib/currentUser";
import { go, href, type Route } from "../../lib/router";
import { useSettings } from "../../lib/settings";
import { Field } from "../../ui/forms/Field";
import { Empty, Failure } from "../../ui/Messages";
import { Advanced } from "./Advanced";
import { CheckPanel } from "./CheckPanel";
import { BLANK, bodyOf, type Draft, filled, MERGING, OWN, unreadable } from "./draft";
import { FileField } from "./FileField";
import { TextList } from "./TextList";
import { useCheck } from "./useCheck";

export default function NewRunPage({ route }: { route: Route }) {
  const me = useMe();
  const maySubmit = useMaySubmit();
  const models = useResource<ModelList>("models");
  const kinds = useResource<Kinds>("kinds");
  const from = route.query.get("from");
  const before = useResource<Again>(from === null ? null : `runs/${encodeURIComponent(from)}/asked`);
  const [draft, setDraft] = useState<Draft>(() => begin(route));
  const settings = useSettings(draft.kind);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const key = useRef(newKey());
  const schema = settings.data?.schema;
  const kind = kinds.data?.kinds.find(({ name }) => name === draft.kind);
  const whole = kind?.file ?? false;
  const body = useMemo(() => bodyOf(draft, schema, whole), [draft, schema, whole]);
  const own = useMemo(() => unreadable(draft), [draft]);
  const merging = draft.kind === MERGING;
  const takes = kind?.takes ?? [];
  const further = takes.filter((name) => !["sources", "model", "base", "data"].includes(name));
  const begun = kind === undefined ? false : whole ? draft.file.trim() !== "" : draft.models.some((name) => name.trim() !== "") || !(merging || takes.includes("model"));
  const checked = useCheck(body, begun && Object.keys(own).length === 0);
  useTitle("New run");
  const asked = before.data;
  useEffect(() => {
    if (asked) setDraft(filled(asked));
  }, [asked]);
  if (me && !maySubmit) {
    return (
      <Empty title="Viewers start no runs">
        <p>You are signed in as {me.name}, a viewer. An admin can change that.</p>
      </Empty>
    );
  }
  const problems: Record<string, string> = { ...wrongFields(checked.error), ...own };
  const put = (part: Partial<Draft>) => {
    setError(null);
    setDraft({ ...draft, ...part });
  };
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      const answer = await send<Made>("runs", "POST", body, { headers: { "Idempotency-Key": key.current } });
      go(href(["runs", answer.data.run]));
    } catch (cause) {
      setError(cause);
      setBusy(false);
      if (cause instanceof ApiError && cause.status === 409) key.current = newKey();
    }
  };
  const defaults = settings.data?.defaults ?? {};
  return (
    <>
      <header className="page-head">
        <h1>New run</h1>
        {from !== null && (
          <span className="soft">
            as <a className="mono" href={href(["runs", from])}>{from}</a>, with changes
          </span>
        )}
      </header>
      {before.error !== null && <Failure error={before.error} onRetry={() => void before.reload()} />}
      <form
        className="new-run"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <div className="new-fields">
          <datalist id="known-models">
            {(models.data?.models ?? []).map((model) => (
              <option key={model.id} value={model.path ?? model.id}>
                {model.name}
              </option>
            ))}
          </datalist>
          <Field label="Kind" hint={kind?.line}>
            {(given) => (
              <select {...given} className="select" value={draft.kind} onChange={(event) => put({ kind: event.target.value, more: {}, roles: {} })}>
                {(kinds.data?.kinds.map((kind) => kind.name) ?? [draft.kind]).map((name) => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            )}
          </Field>
          {whole && <FileField value={draft.file} onChange={(file) => put({ file })} />}
          {merging && <TextList label="Sources" each="Model" hint="Two or more: folders on the server, Hub ids (owner/name[@revision]), aliases, runs (RUN/champion, RUN:ROLE) or registered models." values={draft.models}
            least={2} list="known-models" wrong={problems.models} onChange={(values) => put({ models: values })} />}
          {takes.includes("model") && <Field label="Model" wrong={problems.models} hint="A folder on the server, a Hub id, a run (RUN/champion, RUN:ROLE) or a registered model.">
            {(given) => <input {...given} className="input mono" list="known-models" value={draft.models[0] ?? ""} onChange={(event) => put({ models: [event.target.value, ""] })} />}
          </Field>}
          {further.map((role) => (
            <TextList key={role} label={capital(role)} each={capital(role).replace(/s$/, "")} hint="Further models that this kind of run takes, named as the model is. Optional."
              values={draft.roles[role] ?? []} least={0} list="known-models" onChange={(values) => put({ roles: { ...draft.roles, [role]: values } })} />
          ))}
          {takes.includes("base") && <Field label="Base" wrong={problems.base}
            hint={merging ? "The sources' common ancestor. Without it, the first source stands in." : "A model of your own to start from. Without it, the run makes one."}>
            {(given) => <input {...given} className="input mono" list="known-models" value={draft.base} onChange={(event) => put({ base: event.target.value })} />}
          </Field>}
          {takes.includes("data") && <TextList label="Data" each="Items" values={draft.data} least={1} wrong={problems.data} onChange={(values) => put({ data: values })}
            hint={merging ? "JSONL or text files, folders, lm-eval:TASK or builtin:domains. Without any: built-in text." : "Text files or folders, each PATH or DOMAIN=PATH. Without any: built-in text."} />}
          {merging && <div className="four">
            <Field label="Strategy" wrong={problems.strategy}>
              {(given) => (
                <select {...given} className="select" value={draft.strategy} onChange={(event) => put({ strategy: event.target.value })}>
                  <option value="">default</option>
                  {(settings.data?.strategies ?? []).map((name) => (
                    <option key={name}>{name}</option>
                  ))}
                </select>
              )}
            </Field>
            <Field label="Generations" wrong={problems.generations}>
              {(given) => (
                <input {...given} className="input" inputMode="numeric" placeholder={placeholder(defaults.generations)} value={draft.generations}
                  onChange={(event) => put({ generations: event.target.value })} />
              )}
            </Field>
            <Field label="Budget" wrong={problems.budget_hours} hint="Time for the whole run. Without generations, it ends the search.">
              {(given) => (
                <input {...given} className="input" placeholder="none, or 30m, 1h, 2h30m" value={draft.budget_hours}
                  onChange={(event) => put({ budget_hours: event.target.value })} />
              )}
            </Field>
            <Field label="Seed" wrong={problems.seed}>
              {(given) => (
                <input {...given} className="input" inputMode="numeric" placeholder={placeholder(defaults.seed)} value={draft.seed}
                  onChange={(event) => put({ seed: event.target.value })} />
              )}
            </Field>
          </div>}
          <div className="three">
            <Field label="Priority" wrong={problems.priority} hint="Of your runs, the highest first.">
              {(given) => <input {...given} className="input" inputMode="numeric" placeholder="0" value={draft.priority} onChange={(event) => put({ priority: event.target.value })} />}
            </Field>
            <Field label="Labels" wrong={problems.labels} hint="Separated by commas. Only a worker with all of these labels takes the run.">
              {(given) => <input {...given} className="input" value={draft.labels} onChange={(event) => put({ labels: event.target.value })} />}
            </Field>
            <Field label="Reason (optional)" wrong={problems.reason} hint="Saved in the run's log.">
              {(given) => <input {...given} className="input" value={draft.reason} onChange={(event) => put({ reason: event.target.value })} />}
            </Field>
          </div>
          {settings.error !== null && <Failure error={settings.error} onRetry={() => void settings.reload()} />}
          {schema && !whole && <Advanced key={draft.kind} schema={schema} title={merging ? "Advanced settings" : "Settings"} own={merging ? OWN : []} open={!merging} strategy={draft.strategy} defaults={defaults} values={draft.more} problems={problems} onChange={(more) => put({ more })} />}
        </div>
        <aside className="new-check" aria-label="Check">
          <CheckPanel begun={begun} file={whole} blocked={Object.keys(own).length > 0} checked={checked} config={body.config} />
          {error !== null && <Failure error={error} />}
          <button type="submit" className="button primary" disabled={busy || checked.busy || checked.answer?.ok !== true}>
            Submit the {whole ? draft.kind : "run"}
          </button>
        </aside>
      </form>
    </>
  );
}

/** The form as an address asks for it: a kind, sources, a base. */
function begin(route: Route): Draft {
  const { query } = route;
  const sources = query.getAll("source");
  return {
    ...BLANK,
    kind: query.get("kind") ?? MERGING,
    models: sources.length > 1 ? sources : [...sources, "", ""].slice(0, 2),
    base: query.get("base") ?? "",
  };
}

/** The same key means the same run. It begins with the day, which the run is named after. */
function newKey(): string {
  return `${new Date().toISOString().slice(0, 10).replaceAll("-", "")}-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
}

function capital(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

function placeholder(value: unknown): string | undefined {
  return typeof value === "number" ? String(value) : undefined;
}
