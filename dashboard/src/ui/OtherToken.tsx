/** Asks before a token in the address takes the place of the one that is kept. */
import { useSyncExternalStore } from "react";
import { answer, offered, onSession } from "../api/session";
import { Dialog } from "./Dialog";

export function OtherToken() {
  const token = useSyncExternalStore(onSession, offered);
  if (token === null) return null;
  return (
    <Dialog
      title="Sign in with another token?"
      onClose={() => answer(false)}
      onSubmit={() => answer(true)}
      foot={
        <>
          <button type="button" className="button" onClick={() => answer(false)}>
            Cancel
          </button>
          <button type="submit" className="button primary">
            Use the new token
          </button>
        </>
      }
    >
      <p className="soft">
        The address that you opened has a token, and this browser keeps another one. Use the new one only if you trust where the
        address came from: what you start would be recorded under its name.
      </p>
    </Dialog>
  );
}
