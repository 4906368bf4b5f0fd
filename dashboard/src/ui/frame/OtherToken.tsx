/** Asks before a token in the address takes the place of the one that is kept. */
import { useSyncExternalStore } from "react";
import { answer, offered, onSession } from "../../api/session";
import { FormDialog } from "../forms/FormDialog";

export function OtherToken() {
  const token = useSyncExternalStore(onSession, offered);
  if (token === null) return null;
  return (
    <FormDialog title="Sign in with another token?" does="Use the new token" onClose={() => answer(false)} act={() => answer(true)}>
      <p className="soft">
        The address that you opened has a token, and this browser keeps another one. Use the new one only if you trust where the
        address came from: what you start would be recorded under its name.
      </p>
    </FormDialog>
  );
}
