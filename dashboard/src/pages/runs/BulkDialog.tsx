/** Pauses or cancels several runs, one after the other; says which could not be. */
import { useState } from "react";
import { explain, send } from "../../api/client";
import { plural } from "../../lib/format";
import { FormDialog } from "../../ui/forms/FormDialog";
import { ReasonField } from "../../ui/forms/ReasonField";

export type Bulk = "pause" | "cancel";

const TEXTS: Record<Bulk, { does: string; says: string }> = {
  pause: { does: "Pause", says: "Tasks under way are finished; no new tasks start. Recorded results stay." },
  cancel: { does: "Cancel", says: "This cancels the runs for good. Their results stay, and they can be forked." },
};

interface Props {
  action: Bulk;
  runs: readonly string[];
  /** What a run is called. */
  named: (run: string) => string;
  onClose: () => void;
  onDone: () => void;
}

export function BulkDialog({ action, runs, named, onClose, onDone }: Props) {
  const [reason, setReason] = useState("");
  const [wrong, setWrong] = useState<string | undefined>();
  const needed = action === "cancel";
  const { does, says } = TEXTS[action];
  const act = async () => {
    setWrong(needed && !reason.trim() ? "Give a reason: it is recorded with each run." : undefined);
    if (needed && !reason.trim()) return;
    const failed: string[] = [];
    for (const run of runs) {
      try {
        await send(`runs/${encodeURIComponent(run)}/${action}`, "POST", { reason: reason.trim() || null });
      } catch (cause) {
        failed.push(`${named(run)}: ${explain(cause)}`);
      }
    }
    if (failed.length > 0) throw new Error(failed.join(" "));
    onDone();
  };
  return (
    <FormDialog title={`${does} ${plural(runs.length, "run")}`} does={`${does} ${plural(runs.length, "run")}`} cancel="Close" danger={needed} onClose={onClose} act={act}>
      <p className="soft">{says}</p>
      <ReasonField value={reason} onChange={setReason} needed={needed} wrong={wrong} />
    </FormDialog>
  );
}
