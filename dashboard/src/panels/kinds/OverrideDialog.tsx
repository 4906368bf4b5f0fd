/** Lets a run go on although a gate has stopped it; the reason is recorded. */
import { useState } from "react";
import { send } from "../../api/client";
import { invalidate } from "../../api/queries";
import type { Gate } from "../../api/types";
import { FormDialog } from "../../ui/forms/FormDialog";
import { ReasonField } from "../../ui/forms/ReasonField";

interface Props {
  run: string;
  gate: Pick<Gate, "name" | "about" | "reason">;
  onClose: () => void;
}

export function OverrideDialog({ run, gate, onClose }: Props) {
  const [reason, setReason] = useState("");
  const [wrong, setWrong] = useState<string>();
  const path = `runs/${encodeURIComponent(run)}`;

  const act = async () => {
    if (!reason.trim()) {
      setWrong("Give a reason: it is recorded with the run.");
      return;
    }
    await send(`${path}/override`, "POST", { phase: gate.about, reason: reason.trim() });
    invalidate((one) => one === "needs" || (one.startsWith(path) && !one.includes("at=")));
    onClose();
  };
  return (
    <FormDialog title={`Override ${gate.name}`} does="Go on behind this gate" cancel="Cancel" onClose={onClose} act={act}>
      <p className="soft">{gate.reason}</p>
      <p className="soft">The run goes on behind this gate with the result as it is.</p>
      <ReasonField value={reason} onChange={setReason} needed wrong={wrong} />
    </FormDialog>
  );
}
