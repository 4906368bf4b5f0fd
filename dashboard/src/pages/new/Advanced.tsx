/** Every other setting, from its schema. Empty means the default. */
import { useState } from "react";
import type { Values } from "../../api/types";
import { setting, words } from "../../lib/format";
import { kinds, resolve, type Schema } from "../../lib/schema";
import { Field } from "../../ui/forms/Field";

interface Props {
  schema: Schema;
  title: string;
  /** Settings that have fields of their own elsewhere. */
  own: readonly string[];
  open?: boolean;
  /** The chosen strategy; empty: the default. */
  strategy: string;
  defaults: Values;
  values: Record<string, string>;
  problems: Record<string, string>;
  onChange: (values: Record<string, string>) => void;
}

export function Advanced({ schema, title, own, open = false, strategy, defaults, values, problems, onChange }: Props) {
  const [text, setText] = useState("");
  const given = Object.values(values).filter((value) => value.trim() !== "").length;
  const names = Object.entries(schema.properties ?? {}).filter(([name, known]) => {
    if (own.includes(name)) return false;
    if ((values[name] ?? "") !== "") return true;
    return suits(known, strategy) && name.includes(text.trim().replaceAll(" ", "_"));
  });
  const put = (name: string, value: string) => onChange({ ...values, [name]: value });
  return (
    <details className="advanced" open={open}>
      <summary>{title}{given > 0 ? ` (${given} given)` : ""}</summary>
      <input className="input" type="search" aria-label="Search settings" placeholder="Search settings" value={text} onChange={(event) => setText(event.target.value)} />
      <div className="advanced-grid">
        {names.map(([name, found]) => {
          const known = resolve(found, schema);
          return (
            <Field key={name} label={words(name)} hint={hint(known)} wrong={problems[name]}>
              {(bind) => <Control bind={bind} schema={known} root={schema} standard={defaults[name]} value={values[name] ?? ""} onChange={(value) => put(name, value)} />}
            </Field>
          );
        })}
      </div>
    </details>
  );
}

/** A strategy that was not chosen is decided by the settings that are given: all are shown. */
function suits(known: Schema, strategy: string): boolean {
  return strategy === "" || known.strategies === undefined || known.strategies.includes(strategy);
}

function hint(known: Schema): string | undefined {
  const only = known.strategies?.join(", ");
  return only === undefined ? known.description : `${known.description ?? ""} Strategies: ${only}.`;
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
        <option value="">{setting(standard)} (default)</option>
        {choices
          .filter((choice) => choice !== standard)
          .map((choice) => (
            <option key={String(choice)} value={String(choice)}>
              {String(choice)}
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
      placeholder={setting(standard)}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
