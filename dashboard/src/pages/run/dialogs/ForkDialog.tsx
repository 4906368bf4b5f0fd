/** A fork: the past up to a place, a future with other settings. */
import { useMemo, useState } from "react";
import { ApiError, send } from "../../../api/client";
import type { Json } from "../../../api/types";
import { setting } from "../../../lib/format";
import { go, href } from "../../../lib/router";
import { parse, wrong as whatIsWrong } from "../../../lib/schema";
import { useSettings } from "../../../lib/settings";
import { Dialog } from "../../../ui/Dialog";
import { Field } from "../../../ui/Field";
import { Icon } from "../../../ui/Icon";
import { Failure } from "../../../ui/Messages";
import { runPath, useRun } from "../context";
import { snap } from "../nearestBoundary";
import { Reason } from "../../../ui/Reason";

interface Change {
  id: number;
  key: string;
  value: string;
}

let counted = 0;
const blank = (): Change => ({ id: (counted += 1), key: "", value: "" });

export function ForkDialog({ onClose }: { onClose: () => void }) {
  const { live, at } = useRun();
  const settings = useSettings();
  const last = live.generations.at(-1)?.generation;
  // Where a run has ended a fork has no future: its last generation is the last place that has one.
  const ended = at === null && last !== undefined && ["completed", "failed", "cancelled"].includes(live.status);
  const [by, setBy] = useState<"at" | "generation">(ended ? "generation" : "at");
  const [place, setPlace] = useState(String(ended ? last : (at ?? live.places)));
  const [changes, setChanges] = useState<Change[]>(() => [blank()]);
  const [reason, setReason] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState(false);
  const schema = settings.data?.schema;
  const used = changes.filter((change) => change.key.trim() !== "");

  const problems = useMemo(() => {
    const found = new Map<number, string>();
    for (const change of changes) {
      const key = change.key.trim();
      if (!key) continue;
      const known = schema?.properties?.[key];
      if (schema && !known) found.set(change.id, `there is no setting ${key}`);
      else if (schema && known) {
        if (change.value.trim() === "") found.set(change.id, "give a value");
        else {
          const said = whatIsWrong(parse(change.value, known, schema), known, schema);
          if (said) found.set(change.id, said);
        }
      }
    }
    return found;
  }, [changes, schema]);
  const number = Number(place);
  const [low, high] = by === "at" ? [1, live.places] : [0, last ?? 0];
  const fits = place.trim() !== "" && Number.isInteger(number) && number >= low && number <= high;
  const badPlace = fits ? null : `Give a number from ${low} to ${high}.`;

  const submit = async () => {
    setTried(true);
    if (badPlace || problems.size > 0) return;
    setBusy(true);
    setError(null);
    const values: Record<string, Json> = {};
    for (const change of used) {
      const known = schema?.properties?.[change.key.trim()] ?? {};
      values[change.key.trim()] = parse(change.value, known, schema ?? {});
    }
    try {
      const answer = await send<{ run: string }>(runPath(live.run, "/fork"), "POST", {
        [by]: number,
        settings: values,
        reason: reason.trim() || null,
      });
      onClose();
      go(href(["runs", answer.data.run]));
    } catch (cause) {
      setError(cause);
      const nearest = by === "at" && cause instanceof ApiError ? snap(cause.problem, number) : null;
      if (nearest !== null) setPlace(String(nearest));
    } finally {
      setBusy(false);
    }
  };
  const put = (id: number, part: Partial<Change>) => setChanges(changes.map((one) => (one.id === id ? { ...one, ...part } : one)));
  return (
    <Dialog
      title={`Fork ${live.run}`}
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary" disabled={busy}>
            Fork
          </button>
        </>
      }
    >
      <p className="soft">A new run with this one's past up to an event, and a future of its own. Nothing is copied.</p>
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
              {last !== undefined && <option value="generation">when a generation is measured, before it is closed</option>}
            </select>
          )}
        </Field>
        <Field label={by === "at" ? "Event" : "Generation"} wrong={tried ? badPlace : null} hint={`${low} to ${high}`}>
          {(given) => <input {...given} className="input" inputMode="numeric" value={place} onChange={(event) => setPlace(event.target.value)} />}
        </Field>
      </div>
      <fieldset className="field">
        <legend>Settings that change</legend>
        <datalist id="setting-names">
          {Object.keys(schema?.properties ?? {}).map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        {changes.map((change) => {
          const said = problems.get(change.id);
          const now = live.config[change.key.trim()];
          return (
            <div key={change.id} className="change">
              <input className="input mono" list="setting-names" aria-label="Setting" placeholder="setting" value={change.key}
                aria-invalid={said && tried ? true : undefined} onChange={(event) => put(change.id, { key: event.target.value })} />
              <input className="input mono" aria-label={`Value of ${change.key || "the setting"}`} value={change.value}
                placeholder={now === undefined ? "value" : `now ${setting(now)}`} aria-invalid={said && tried ? true : undefined}
                onChange={(event) => put(change.id, { value: event.target.value })} />
              <button type="button" className="button plain icon" aria-label="Remove"
                onClick={() => setChanges(changes.filter((one) => one.id !== change.id))}>
                <Icon name="cross" />
              </button>
              {said && (tried || change.value !== "") && (
                <span className="wrong" role="status">
                  {change.key} {said}
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
      <Reason value={reason} onChange={setReason} />
      {error !== null && <Failure error={error} />}
    </Dialog>
  );
}
