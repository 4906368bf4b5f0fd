/** Takes a model out of the registry. Its files stay. */
import { useState } from "react";
import { send, withQuery } from "../../api/client";
import type { Model } from "../../api/types";
import { Dialog } from "../../ui/Dialog";
import { Failure } from "../../ui/Messages";
import { Reason } from "../../ui/Reason";

interface Props {
  model: Model;
  onClose: () => void;
  onDone: () => void;
}

export function RemoveDialog({ model, onClose, onDone }: Props) {
  const [reason, setReason] = useState("");
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    setError(null);
    try {
      await send(withQuery(`models/${encodeURIComponent(model.id)}`, { reason: reason.trim() }), "DELETE");
      onDone();
    } catch (cause) {
      setError(cause);
    }
  };
  return (
    <Dialog
      title={`Remove ${model.name}`}
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary danger">
            Remove
          </button>
        </>
      }
    >
      <p className="soft">The model leaves the registry. Its files stay where they are.</p>
      <Reason value={reason} onChange={setReason} />
      {error !== null && <Failure error={error} />}
    </Dialog>
  );
}
