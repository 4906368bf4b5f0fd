/** Every other setting, in groups, with the labels of its schema. Empty means the default. */
import { useState } from "react";
import type { Values } from "../../api/types";
import { number, setting } from "../../lib/format";
import { kinds, resolve, type Schema } from "../../lib/schema";
import { Field } from "../../ui/forms/Field";

interface Props {
  schema: Schema;
  /** Settings that have fields of their own elsewhere. */
  own: readonly string[];
  /** The first group is open. */
  open?: boolean;
  /** The chosen strategy; empty: the default. */
  strategy: string;
  defaults: Values;
  values: Record<string, string>;
  problems: Record<string, string>;
  onChange: (values: Record<string, string>) => void;
}

type Named = [name: string, known: Schema];

export function Advanced({ schema, own, open = false, strategy, defaults, values, problems, onChange }: Props) {
  const [text, setText] = useState("");
  const [toggled, setToggled] = useState<Record<string, boolean>>({});
  const sought = text.trim().toLowerCase();
  const given = (name: string) => (values[name] ?? "").trim() !== "";
  const all = Object.entries(schema.properties ?? {}).filter(([name, known]) => !own.includes(name) && (given(name) || suits(known, strategy)));
  const shown = all.filter(([name, known]) => given(name) || fits(name, known, sought));
  const groups = new Map<string, Named[]>();
  for (const row of shown) {
    const group = row[1].group ?? "Settings";
    groups.set(group, [...(groups.get(group) ?? []), row]);
  }
  const put = (name: string, value: string) => onChange({ ...values, [name]: value });
  return (
    <section className="advanced" aria-label="Settings">
      <div className="advanced-head">
        <h2>{own.length > 0 ? "Advanced settings" : "Settings"}</h2>
        <input className="input" type="search" aria-label="Search settings" placeholder="Search settings" value={text} onChange={(event) => setText(event.target.value)} />
      </div>
      {[...groups].map(([group, names], index) => {
        const count = names.filter(([name]) => given(name)).length;
        const wrong = names.some(([name]) => problems[name] !== undefined);
        const isOpen = sought !== "" || wrong || (toggled[group] ?? (count > 0 || (open && index === 0)));
        return (
          <details key={group} open={isOpen}>
            <summary
              onClick={(event) => {
                event.preventDefault();
                setToggled({ ...toggled, [group]: !isOpen });
              }}
            >
              {group} <span className="quiet">{count > 0 ? `${count} of ${names.length} given` : names.length}</span>
            </summary>
            <div className="advanced-grid">
              {names.map(([name, found]) => {
                const known = resolve(found, schema);
                return (
                  <Field key={name} label={found.title ?? name} hint={hint(known, schema)} wrong={problems[name]}>
                    {(bind) => <Control bind={bind} schema={known} root={schema} standard={defaults[name]} value={values[name] ?? ""} onChange={(value) => put(name, value)} />}
                  </Field>
                );
              })}
            </div>
          </details>
        );
      })}
      {groups.size === 0 && <p className="soft small">No setting has “{text.trim()}” in its name or description.</p>}
    </section>
  );
}

/** A search looks at the label, at the name that the API and the terminal have, and at the description. */
function fits(name: string, known: Schema, sought: string): boolean {
  return [name, name.replaceAll("_", " "), known.title, known.description].some((text) => text?.toLowerCase().includes(sought));
}

/** A strategy that was not chosen is decided by the settings that are given: all are shown. */
function suits(known: Schema, strategy: string): boolean {
  return strategy === "" || known.strategies === undefined || known.strategies.includes(strategy);
}

/** A description, with other settings by their labels: “Quality to keep” for `retention`. */
function hint(known: Schema, root: Schema): string {
  const label = (whole: string, name: string) => {
    const title = whole !== name || name.includes("_") ? root.properties?.[name]?.title : undefined;
    return title === undefined ? name : `“${title}”`;
  };
  const text = (known.description ?? "").replace(/`([a-z0-9_]+)`|\b[a-z0-9]+(?:_[a-z0-9]+)+\b/g, (whole: string, name?: string) => label(whole, name ?? whole));
  return known.strategies === undefined ? text : `${text} Strategies: ${known.strategies.join(", ")}.`;
}

/** A default as a person writes it: 4,000,000 with commas, small numbers in full. */
export function standardText(value: unknown): string {
  if (value === null || value === undefined) return "default: none";
  return `default: ${Number.isInteger(value) ? number(value as number) : setting(value)}`;
}

interface ControlProps {
  bind: { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean | undefined };
  schema: Schema;
  root: Schema;
  standard: unknown;
  value: string;
  onChange: (value: string) => void;
}

function Control({ bind, schema, root, standard, value, onChange }: ControlProps) {
  const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  if (choices) {
    return (
      <select {...bind} className="select" value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">{choice(standard)} (default)</option>
        {choices
          .filter((one) => one !== standard)
          .map((one) => (
            <option key={String(one)} value={String(one)}>
              {choice(one)}
            </option>
          ))}
      </select>
    );
  }
  const numeric = [...kinds(schema, root)].every((kind) => kind === "number" || kind === "integer" || kind === "null");
  return (
    <input
      {...bind}
      className={`input ${numeric ? "" : "mono"}`}
      inputMode={numeric ? "decimal" : undefined}
      placeholder={standardText(standard)}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

function choice(value: unknown): string {
  return typeof value === "boolean" ? (value ? "yes" : "no") : setting(value);
}
