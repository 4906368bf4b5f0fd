/** Asks once more before something that cannot be taken back. */
import { useState } from "react";
import { Dialog } from "./Dialog";
import { Failure } from "./Messages";

export interface Question {
  title: string;
  says: string;
  does: string;
  act: () => Promise<unknown>;
}

export function Confirm({ asked, onClose }: { asked: Question; onClose: () => void }) {
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    setError(null);
    try {
      await asked.act();
      onClose();
    } catch (cause) {
      setError(cause);
    }
  };
  return (
    <Dialog
      title={asked.title}
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary danger">
            {asked.does}
          </button>
        </>
      }
    >
      <p className="soft">{asked.says}</p>
      {error !== null && <Failure error={error} />}
    </Dialog>
  );
}
