/** Takes a model out of the registry. Its files stay. */
import { useState } from "react";
import { send, withQuery } from "../../api/client";
import type { Model } from "../../api/types";
import { FormDialog } from "../../ui/forms/FormDialog";
import { ReasonField } from "../../ui/forms/ReasonField";

interface Props {
  model: Model;
  onClose: () => void;
  onDone: () => void;
}

export function RemoveDialog({ model, onClose, onDone }: Props) {
  const [reason, setReason] = useState("");
  const act = async () => {
    await send(withQuery(`models/${encodeURIComponent(model.id)}`, { reason: reason.trim() }), "DELETE");
    onDone();
  };
  return (
    <FormDialog title={`Remove ${model.name}`} does="Remove" danger onClose={onClose} act={act}>
      <p className="soft">The model leaves the registry. Its files stay where they are.</p>
      <ReasonField value={reason} onChange={setReason} />
    </FormDialog>
  );
}
