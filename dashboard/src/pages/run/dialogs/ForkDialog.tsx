/** A fork: the past up to a place, a future with other settings. */
import { useState } from "react";
import { ApiError, send, wrongFields } from "../../../api/client";
import { isMerging, type Json, type Made } from "../../../api/types";
import { setting, words } from "../../../lib/format";
import { go, href } from "../../../lib/router";
import { kinds, parse, resolve, type Schema } from "../../../lib/schema";
import { useSettings } from "../../../lib/settings";
import { Field } from "../../../ui/forms/Field";
import { FormDialog } from "../../../ui/forms/FormDialog";
import { Icon } from "../../../ui/Icon";
import { runPath, useRun } from "../context";
import { snap } from "../nearestBoundary";
import { ReasonField } from "../../../ui/forms/ReasonField";

interface Change {
  id: number;
  key: string;
  value: string;
}

let counted = 0;
const blank = (): Change => ({ id: (counted += 1), key: "", value: "" });

interface ValueProps {
  name: string;
  schema: Schema;
  root: Schema;
  now: unknown;
  value: string;
  wrong: boolean;
  onChange: (value: string) => void;
}

/** The new value of a setting: a choice if the schema names all values, else a text. */
function Value({ name, schema, root, now, value, wrong, onChange }: ValueProps) {
  const bind = { "aria-label": `Value of ${name || "the setting"}`, "aria-invalid": wrong ? true : undefined, disabled: name === "", value };
  const standing = now === undefined ? "value" : `now ${setting(now)}`;
  const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  if (choices) {
    return (
      <select {...bind} className="select" onChange={(event) => onChange(event.target.value)}>
        <option value="">{standing}</option>
        {choices.filter((choice) => choice !== now).map((choice) => (
          <option key={String(choice)} value={String(choice)}>
            {String(choice)}
          </option>
        ))}
      </select>
    );
  }
  const numeric = [...kinds(schema, root)].every((kind) => kind === "number" || kind === "integer" || kind === "null");
  return <input {...bind} className={`input ${numeric ? "" : "mono"}`} inputMode={numeric ? "decimal" : undefined} placeholder={standing} onChange={(event) => onChange(event.target.value)} />;
}

export function ForkDialog({ onClose }: { onClose: () => void }) {
  const { live, at } = useRun();
  const settings = useSettings(live.kind);
  const over = ["completed", "failed", "cancelled"].includes(live.status);
  const last = isMerging(live) ? live.generations.at(-1)?.generation : undefined;
  // Where a run has ended a fork has no future: its last generation is the last place that has one.
  const ended = at === null && last !== undefined && over;
  const [by, setBy] = useState<"at" | "generation">(ended ? "generation" : "at");
  const [place, setPlace] = useState(String(ended ? last : (at ?? Math.max(1, live.places - Number(over)))));
  const [changes, setChanges] = useState<Change[]>(() => [blank()]);
  const [reason, setReason] = useState("");
  const [tried, setTried] = useState(false);
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const schema = settings.data?.schema;
  const used = changes.filter((change) => change.key !== "" && change.value.trim() !== "");

  const number = Number(place);
  const [low, high] = by === "at" ? [1, live.places] : [0, last ?? 0];
  const fits = place.trim() !== "" && Number.isInteger(number) && number >= low && number <= high;
  const badPlace = fits ? null : `Give a number from ${low} to ${high}.`;

  const act = async () => {
    setTried(true);
    if (badPlace) return;
    const values: Record<string, Json> = {};
    for (const change of used) {
      const known = schema?.properties?.[change.key.trim()] ?? {};
      values[change.key.trim()] = parse(change.value, known, schema ?? {});
    }
    try {
      const body = { [by]: number, settings: values, reason: reason.trim() || null };
      const answer = await send<Made>(runPath(live.run, "/fork"), "POST", body);
      onClose();
      go(href(["runs", answer.data.run]));
    } catch (cause) {
      setWrong(wrongFields(cause));
      const nearest = by === "at" && cause instanceof ApiError ? snap(cause.problem, number) : null;
      if (nearest !== null) setPlace(String(nearest));
      throw cause;
    }
  };
  const put = (id: number, part: Partial<Change>) => {
    setWrong({});
    setChanges(changes.map((one) => (one.id === id ? { ...one, ...part } : one)));
  };
  return (
    <FormDialog title={`Fork ${live.name}`} does="Fork" onClose={onClose} act={act}>
      <p className="soft">A new run with this run's past up to an event, and a future of its own. Nothing is copied.</p>
      <div className="where">
        <Field label="Where">
          {(given) => (
            <select
              {...given}
              className="select"
              value={by}
              onChange={(event) => {
                const next = event.target.value === "at" ? "at" : "generation";
                setBy(next);
                setPlace(String(next === "at" ? (at ?? live.places) : (last ?? 0)));
              }}
            >
              <option value="at">after an event</option>
              {last !== undefined && <option value="generation">before a generation closes</option>}
            </select>
          )}
        </Field>
        <Field label={by === "at" ? "Event" : "Generation"} wrong={tried ? badPlace : null} hint={`${low} to ${high}`}>
          {(given) => <input {...given} className="input" inputMode="numeric" value={place} onChange={(event) => setPlace(event.target.value)} />}
        </Field>
      </div>
      <fieldset className="field">
        <legend>Settings that change</legend>
        {changes.map((change) => {
          const said = wrong[change.key.trim()];
          const now = live.config[change.key.trim()];
          const known = resolve(schema?.properties?.[change.key] ?? {}, schema ?? {});
          return (
            <div key={change.id} className="change">
              <select className="select" aria-label="Setting" value={change.key} onChange={(event) => put(change.id, { key: event.target.value, value: "" })}>
                <option value="">Choose a setting</option>
                {Object.keys(schema?.properties ?? {})
                  .filter((name) => name === change.key || !changes.some((other) => other.key === name))
                  .map((name) => (
                    <option key={name} value={name}>
                      {words(name)}
                    </option>
                  ))}
              </select>
              <Value name={change.key} schema={known} root={schema ?? {}} now={now} value={change.value} wrong={Boolean(said)} onChange={(value) => put(change.id, { value })} />
              <button type="button" className="button plain icon" aria-label="Remove"
                onClick={() => setChanges(changes.filter((one) => one.id !== change.id))}>
                <Icon name="cross" />
              </button>
              {known.description && <span className="hint">{known.description}</span>}
              {said && (
                <span className="wrong" role="status">
                  {change.key}: {said}
                </span>
              )}
            </div>
          );
        })}
        <div>
          <button type="button" className="button small" onClick={() => setChanges([...changes, blank()])}>
            <Icon name="plus" />
            Setting
          </button>
        </div>
      </fieldset>
      <ReasonField value={reason} onChange={setReason} />
    </FormDialog>
  );
}
