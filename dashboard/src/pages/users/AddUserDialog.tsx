/** Adds a user, with a first token. */
import { useState } from "react";
import { send } from "../../api/client";
import { ROLES, type Role } from "../../api/types";
import { Dialog } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Failure } from "../../ui/Messages";

interface Props {
  onClose: () => void;
  onDone: (name: string, token: string) => void;
}

export function AddUserDialog({ onClose, onDone }: Props) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("submitter");
  const [tried, setTried] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    setTried(true);
    if (!name.trim()) return;
    setError(null);
    try {
      await send("users", "POST", { name: name.trim(), role });
      const made = await send<{ token: string }>(`users/${encodeURIComponent(name.trim())}/tokens`, "POST", {});
      onDone(name.trim(), made.data.token);
    } catch (cause) {
      setError(cause);
    }
  };
  return (
    <Dialog
      title="Add a user"
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary">
            Add
          </button>
        </>
      }
    >
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
      {error !== null && <Failure error={error} />}
    </Dialog>
  );
}
