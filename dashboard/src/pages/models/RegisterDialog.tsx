/** A model that the server can read is put into the registry. */
import { useState } from "react";
import { send } from "../../api/client";
import type { ModelKind } from "../../api/types";
import { useMe } from "../../lib/currentUser";
import { Field } from "../../ui/forms/Field";
import { FormDialog } from "../../ui/forms/FormDialog";

/** Champions come from runs only. */
const KINDS: ModelKind[] = ["specialist", "source", "base"];

export function RegisterDialog({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const roots = useMe()?.roots ?? [];
  const [path, setPath] = useState("");
  const [name, setName] = useState("");
  const [kind, setKind] = useState<ModelKind>("specialist");
  const [tried, setTried] = useState(false);
  const act = async () => {
    setTried(true);
    if (!path.trim()) return;
    await send("models", "POST", { path: path.trim(), name: name.trim() || null, kind });
    onDone();
  };
  return (
    <FormDialog title="Register a model" does="Register" onClose={onClose} act={act}>
      <Field label="Folder or GGUF file" wrong={tried && !path.trim() ? "Give a folder or a GGUF file on the server." : null}
        hint={roots.length > 0 ? `below ${roots.join(" or ")}` : "a folder with safetensors, or a GGUF file, on the server"}>
        {(given) => <input {...given} className="input mono" value={path} onChange={(event) => setPath(event.target.value)} />}
      </Field>
      <Field label="Name" hint="Default: the name of the folder or file.">
        {(given) => <input {...given} className="input" value={name} onChange={(event) => setName(event.target.value)} />}
      </Field>
      <Field label="Kind">
        {(given) => (
          <select {...given} className="select" value={kind} onChange={(event) => setKind(event.target.value as ModelKind)}>
            {KINDS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        )}
      </Field>
    </FormDialog>
  );
}
