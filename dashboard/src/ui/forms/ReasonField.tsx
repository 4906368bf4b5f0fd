/** Why something is done: it is recorded. */
import { Field } from "./Field";

interface ReasonProps {
  value: string;
  onChange: (value: string) => void;
  needed?: boolean;
  wrong?: string | undefined;
}

export function ReasonField({ value, onChange, needed = false, wrong }: ReasonProps) {
  return (
    <Field label={needed ? "Reason (required)" : "Reason (optional)"} hint="It is recorded in the log, with your name." wrong={wrong}>
      {(given) => <textarea {...given} className="area" required={needed} value={value} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}
