/** Pause, resume, cancel, retry, priority and export: each with a reason, which is recorded. */
import { useState } from "react";
import { send } from "../../../api/client";
import { invalidate } from "../../../api/queries";
import { type Action, isMerging, type RunFacts } from "../../../api/types";
import { Dialog } from "../../../ui/forms/Dialog";
import { Field } from "../../../ui/forms/Field";
import { FormDialog } from "../../../ui/forms/FormDialog";
import { ReasonField } from "../../../ui/forms/ReasonField";
import { runPath, useRun } from "../context";
import { ExportState } from "./ExportState";

type Plain = Exclude<Action, "fork">;

const TEXTS: Record<Plain, { title: string; says: string; does: string }> = {
  pause: { title: "Pause", says: "Tasks under way are finished; no new tasks start. Recorded results stay.", does: "Pause the run" },
  resume: { title: "Resume", says: "The run goes on where it was.", does: "Resume the run" },
  retry: { title: "Retry", says: "Failed attempts are forgotten, and the tasks are tried again.", does: "Retry" },
  priority: { title: "Priority", says: "Of one user's runs, those with the highest number come first.", does: "Set the priority" },
  export: { title: "Export", says: "The result is written as a folder on the server, with its report. Then it can be downloaded.", does: "Export" },
  cancel: { title: "Cancel", says: "This cancels the run for good. Its results stay, and the run can be forked.", does: "Cancel the run" },
};

/** The fixed merge that the verdict recommends instead of the champion; null for none. */
function recommended(run: RunFacts): string | null {
  return isMerging(run) && run.verdict?.loses_to_best_baseline ? run.verdict.best_baseline : null;
}

const GIVE_UP = { title: "Give up", says: "The run ends here for good. Its results stay, and the run can be forked.", does: "Give the run up" };

export function ActionDialog({ action, onClose }: { action: Plain; onClose: () => void }) {
  const { live } = useRun();
  const [reason, setReason] = useState("");
  const [priority, setPriority] = useState(String(live.priority));
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const [exported, setExported] = useState(false);
  const better = recommended(live);
  const [model, setModel] = useState(better ?? "");
  const merges = isMerging(live) ? live.rivals.filter((one) => one.kind === "baseline").map((one) => one.name) : [];
  const texts = action === "cancel" && live.decision ? GIVE_UP : TEXTS[action];
  const needed = action === "cancel";

  const act = async () => {
    const found: Record<string, string> = {};
    if (needed && !reason.trim()) found.reason = "Give a reason: it is recorded with the run.";
    if (action === "priority" && !/^-?\d+$/.test(priority.trim())) found.priority = "Give a whole number.";
    setWrong(found);
    if (Object.keys(found).length > 0) return;
    const body = { reason: reason.trim() || null, ...(action === "priority" ? { priority: Number(priority) } : {}), ...(action === "export" ? { model: model || null } : {}) };
    await send(runPath(live.run, `/${action}`), "POST", body);
    invalidate((path) => path.startsWith(runPath(live.run)) && !path.includes("at="));
    if (action === "export") setExported(true);
    else onClose();
  };
  if (exported) {
    return (
      <Dialog title={`Export of ${live.name}`} onClose={onClose}>
        <ExportState run={live.run} model={model || null} />
      </Dialog>
    );
  }
  return (
    <FormDialog title={`${texts.title} ${live.name}`} does={texts.does} cancel={needed ? (live.decision ? "Decide later" : "Keep running") : "Cancel"} danger={needed} onClose={onClose} act={act}>
      <p className="soft">{texts.says}</p>
      {action === "export" && merges.length > 0 && (
        <Field label="Model" hint={better === null ? undefined : `On the test slice ${better} is better than the champion, so it is chosen.`}>
          {(given) => (
            <select {...given} className="select" value={model} onChange={(event) => setModel(event.target.value)}>
              <option value="">champion</option>
              {merges.map((name) => (
                <option key={name} value={name}>{name}, a fixed merge</option>
              ))}
            </select>
          )}
        </Field>
      )}
      {action === "priority" && (
        <Field label="Priority" wrong={wrong.priority} hint={`now ${live.priority}`}>
          {(given) => <input {...given} className="input" inputMode="numeric" value={priority} onChange={(event) => setPriority(event.target.value)} />}
        </Field>
      )}
      <ReasonField value={reason} onChange={setReason} needed={needed} wrong={wrong.reason} />
    </FormDialog>
  );
}
