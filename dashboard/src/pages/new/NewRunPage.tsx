/** A form for a new run, checked by the server as one types. */
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { ApiError, send, wrongFields } from "../../api/client";
import type { Again, Kinds, Made, ModelList } from "../../api/types";
import { setting } from "../../lib/format";
import { useResource, useTitle } from "../../lib/hooks";
import { useMe, useMaySubmit } from "../../lib/currentUser";
import { go, href, type Route } from "../../lib/router";
import { useSettings } from "../../lib/settings";
import { Field } from "../../ui/forms/Field";
import { Empty, Failure } from "../../ui/Messages";
import { Advanced, standardText } from "./Advanced";
import { CheckPanel } from "./CheckPanel";
import { bodyOf, type Draft, filled, MERGING, OWN, type Quarantine, unreadable } from "./draft";
import { FileField } from "./FileField";
import { TextList } from "./TextList";
import { useCheck } from "./useCheck";
import { useDraft } from "./useDraft";

export default function NewRunPage({ route }: { route: Route }) {
  const me = useMe();
  const maySubmit = useMaySubmit();
  const models = useResource<ModelList>("models");
  const kinds = useResource<Kinds>("kinds");
  const from = route.query.get("from");
  const before = useResource<Again>(from === null ? null : `runs/${encodeURIComponent(from)}/asked`);
  const { draft, changed, put: setDraft, fill, drop, other } = useDraft(route);
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
  const blocked = Object.keys(own).length > 0;
  const checked = useCheck(body, begun && !blocked);
  useTitle("New run");
  const asked = before.data;
  useEffect(() => {
    if (asked) fill(filled(asked));
    // Only when the run is read: what is typed afterwards stays.
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
  const submit = async (whole: typeof body & { checked?: false }) => {
    setBusy(true);
    setError(null);
    try {
      const answer = await send<Made>("runs", "POST", whole, { headers: { "Idempotency-Key": key.current } });
      drop();
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
      {kinds.error !== null && kinds.data === undefined && <Failure error={kinds.error} onRetry={() => void kinds.reload()} />}
      {before.error !== null && <Failure error={before.error} onRetry={() => void before.reload()} />}
      <form
        className="new-run"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (checked.answer?.ok && !checked.busy) void submit(body);
        }}
      >
        <div className="new-fields">
          <datalist id="known-models">
            {(models.data?.models ?? []).map((model) => (
              <option key={model.id} value={model.name}>
                {model.path ?? model.id}
              </option>
            ))}
          </datalist>
          <Field label="Kind" hint={kind && `${capital(kind.line)}.`}>
            {(given) => (
              <select {...given} className="select" value={draft.kind} onChange={(event) => go(other(event.target.value))}>
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
            <Field label="Strategy" wrong={problems.strategy} hint="Without a choice, settings that only elite-loser has choose it.">
              {(given) => (
                <select {...given} className="select" value={draft.strategy} onChange={(event) => put({ strategy: event.target.value })}>
                  <option value="">default: {setting(defaults.strategy)}</option>
                  {(settings.data?.strategies ?? []).map((name) => (
                    <option key={name}>{name}</option>
                  ))}
                </select>
              )}
            </Field>
            <Field label="Generations" wrong={problems.generations}>
              {(given) => (
                <input {...given} className="input" inputMode="numeric" placeholder={standardText(defaults.generations)} value={draft.generations}
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
                <input {...given} className="input" inputMode="numeric" placeholder={standardText(defaults.seed)} value={draft.seed}
                  onChange={(event) => put({ seed: event.target.value })} />
              )}
            </Field>
          </div>}
          <div className="four">
            <Field label="Name (optional)" wrong={problems.name} hint="Left empty, the run is called by its kind and day.">
              {(given) => <input {...given} className="input" maxLength={100} value={draft.name} onChange={(event) => put({ name: event.target.value })} />}
            </Field>
            <Field label="Priority" wrong={problems.priority} hint="Of your runs, the highest first.">
              {(given) => <input {...given} className="input" inputMode="numeric" placeholder="default: 0" value={draft.priority} onChange={(event) => put({ priority: event.target.value })} />}
            </Field>
            <Field label="Labels (optional)" wrong={problems.labels} hint="Separated by commas. Only a worker with all of these labels takes the run.">
              {(given) => <input {...given} className="input" value={draft.labels} onChange={(event) => put({ labels: event.target.value })} />}
            </Field>
            <Field label="Reason (optional)" wrong={problems.reason} hint="Saved in the run's log.">
              {(given) => <input {...given} className="input" value={draft.reason} onChange={(event) => put({ reason: event.target.value })} />}
            </Field>
            <Field label="If a task keeps dying" wrong={problems.quarantine} hint="When it has ended its process three times.">
              {(given) => (
                <select {...given} className="select" value={draft.quarantine} onChange={(event) => put({ quarantine: event.target.value as Quarantine })}>
                  <option value="fail">the run fails (default)</option>
                  <option value="worst-fitness">the run goes on without it</option>
                </select>
              )}
            </Field>
          </div>
          {settings.error !== null && <Failure error={settings.error} onRetry={() => void settings.reload()} />}
          {schema && !whole && <Advanced key={draft.kind} schema={schema} own={merging ? OWN : []} open={!merging} strategy={draft.strategy} defaults={defaults} values={draft.more} problems={problems} onChange={(more) => put({ more })} />}
        </div>
        <aside className="new-check" aria-label="Check">
          <CheckPanel begun={begun} needs={whole ? "Give the file" : merging ? "Name the sources" : "Name the model"} file={whole} blocked={blocked} checked={checked} config={body.config} />
          {error !== null && <Failure error={error} refused="The run was not submitted." />}
          <button type="submit" className="button primary" disabled={busy || checked.busy || checked.answer?.ok !== true}>
            Submit the {whole ? draft.kind : "run"}
          </button>
          {begun && !blocked && checked.busy && checked.answer?.ok !== true && (
            <Unchecked busy={busy} onSubmit={() => void submit({ ...body, checked: false })} />
          )}
          {changed && (
            <button type="button" className="button plain small" onClick={() => drop(asked && filled(asked))}>
              Clear the form
            </button>
          )}
        </aside>
      </form>
    </>
  );
}

/** The same key means the same run. It begins with the day, which the run is named after. */
function newKey(): string {
  return `${new Date().toISOString().slice(0, 10).replaceAll("-", "")}-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
}

function capital(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** Submits a run whose check takes long. */
function Unchecked({ busy, onSubmit }: { busy: boolean; onSubmit: () => void }): ReactNode {
  return (
    <div className="unchecked">
      <button type="button" className="button" disabled={busy} onClick={onSubmit}>
        Submit anyway: the worker checks
      </button>
      <span className="soft small">Names and settings are checked at once. What the worker finds wrong in models or data fails the run.</span>
    </div>
  );
}
