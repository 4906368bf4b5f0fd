/** A dialog that asks the server for something: a form, its two buttons, and what went wrong. */
import { type ReactNode, useState } from "react";
import { Dialog } from "./Dialog";
import { Failure } from "../Messages";

interface Props {
  title: string;
  /** The word on the button that submits. */
  does: string;
  /** The word on the button that closes. */
  cancel?: string;
  danger?: boolean;
  onClose: () => void;
  /** Submits the form, or returns at once where a field is wrong. What it throws is shown, and the dialog stays. */
  act: () => unknown;
  children: ReactNode;
}

export function FormDialog({ title, does, cancel = "Cancel", danger = false, onClose, act, children }: Props) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setError(null);
    setBusy(true);
    try {
      await act();
    } catch (cause) {
      setError(cause);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={title}
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <button type="button" className="button" onClick={onClose}>
            {cancel}
          </button>
          <button type="submit" className={`button primary ${danger ? "danger" : ""}`} disabled={busy}>
            {does}
          </button>
        </>
      }
    >
      {children}
      {error !== null && <Failure error={error} />}
    </Dialog>
  );
}
