/** The text of a pipeline's file: typed, pasted, or read from a file of this machine. */
import { useRef, useState } from "react";
import { Field } from "../../ui/forms/Field";

/** Bytes of the largest file that the server takes. */
const MOST = 1 << 20;

const EXAMPLE = `[[phase]]
name = "specialists"
kind = "cognate"
settings = { preset = "tiny" }

[[phase]]
name = "merge"
kind = "evomerge"
models = { base = "specialists:base", sources = ["specialists:code", "specialists:math"] }
data = "specialists:items"
`;

export function FileField({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const picker = useRef<HTMLInputElement>(null);
  const [wrong, setWrong] = useState<string>();
  const open = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > MOST) {
      setWrong(`${file.name} has more than 1 MiB.`);
      return;
    }
    setWrong(undefined);
    onChange(await file.text());
  };
  return (
    <div className="file-field">
      <Field label="File (TOML)" wrong={wrong} hint="Phases in the order in which they run, each with its kind, settings, models, data and gates. Paths are those of the server.">
        {(given) => (
          <textarea {...given} className="area mono" rows={18} spellCheck={false} wrap="off" placeholder={EXAMPLE} value={value} onChange={(event) => onChange(event.target.value)} />
        )}
      </Field>
      <input ref={picker} type="file" accept=".toml,text/plain" hidden aria-hidden="true" tabIndex={-1} onChange={(event) => { void open(event.target.files?.[0]); event.target.value = ""; }} />
      <div className="buttons">
        <button type="button" className="button" onClick={() => picker.current?.click()}>
          Choose a file
        </button>
        {value.trim() === "" && (
          <button type="button" className="button plain" onClick={() => onChange(EXAMPLE)}>
            Use the example
          </button>
        )}
      </div>
    </div>
  );
}
