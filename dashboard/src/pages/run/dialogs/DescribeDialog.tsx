/** What a user says about a run: its name, a note, tags. */
import { useState } from "react";
import { send } from "../../../api/client";
import { invalidate } from "../../../api/queries";
import { Field } from "../../../ui/forms/Field";
import { FormDialog } from "../../../ui/forms/FormDialog";
import { runPath, useRun } from "../context";

export function DescribeDialog({ onClose }: { onClose: () => void }) {
  const { live } = useRun();
  const [name, setName] = useState(live.name);
  const [note, setNote] = useState(live.note);
  const [tags, setTags] = useState(live.tags.join(" "));
  const act = async () => {
    const words = tags.split(/[\s,]+/).filter(Boolean);
    const changes = {
      ...(name.trim() === live.name ? {} : { name: name.trim() }),
      ...(note === live.note ? {} : { note: note.trim() }),
      ...(words.join(" ") === live.tags.join(" ") ? {} : { tags: words }),
    };
    if (Object.keys(changes).length > 0) {
      await send(runPath(live.run), "PATCH", changes);
      invalidate((path) => path.startsWith(runPath(live.run)) || path.startsWith("runs?") || path === "queue");
    }
    onClose();
  };
  return (
    <FormDialog title={`Describe ${live.name}`} does="Save" onClose={onClose} act={act}>
      <Field label="Name" hint="Letters, digits and _ . + - without blanks. Left empty, the run is called by its kind and day.">
        {(given) => <input {...given} className="input" maxLength={100} value={name} onChange={(event) => setName(event.target.value)} />}
      </Field>
      <Field label="Note" hint="One line.">
        {(given) => <input {...given} className="input" maxLength={2000} value={note} onChange={(event) => setNote(event.target.value)} />}
      </Field>
      <Field label="Tags" hint="Separated by blanks. The list of runs is filtered by them.">
        {(given) => <input {...given} className="input" value={tags} onChange={(event) => setTags(event.target.value)} />}
      </Field>
    </FormDialog>
  );
}
