/** Adds a user, with a first token. */
import { useState } from "react";
import { send } from "../../api/client";
import { type IssuedToken, ROLES, type Role } from "../../api/types";
import { Field } from "../../ui/forms/Field";
import { FormDialog } from "../../ui/forms/FormDialog";

interface Props {
  onClose: () => void;
  onDone: (name: string, token: string) => void;
}

export function AddUserDialog({ onClose, onDone }: Props) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("submitter");
  const [tried, setTried] = useState(false);
  const act = async () => {
    setTried(true);
    if (!name.trim()) return;
    await send("users", "POST", { name: name.trim(), role });
    const made = await send<IssuedToken>(`users/${encodeURIComponent(name.trim())}/tokens`, "POST", {});
    onDone(name.trim(), made.data.token);
  };
  return (
    <FormDialog title="Add a user" does="Add" onClose={onClose} act={act}>
      <Field label="Name" wrong={tried && !name.trim() ? "Give a name." : null} hint="Owner of runs, actor of events.">
        {(given) => <input {...given} className="input" value={name} onChange={(event) => setName(event.target.value)} />}
      </Field>
      <Field label="Role" hint="Viewers read; submitters also submit and steer runs of their own; admins can do everything.">
        {(given) => (
          <select {...given} className="select" value={role} onChange={(event) => setRole(event.target.value as Role)}>
            {ROLES.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        )}
      </Field>
    </FormDialog>
  );
}
