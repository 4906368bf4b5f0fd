/** What a user says about a run or a model: of a run its name, a note, tags. */
import { useState } from "react";
import { Field } from "./Field";
import { FormDialog } from "./FormDialog";

interface Words {
  /** Absent: of a model, which is renamed elsewhere. */
  name?: string;
  note: string;
  tags: string[];
}

interface Props {
  title: string;
  words: Words;
  onClose: () => void;
  /** Sends what has changed; what it throws is shown. */
  onSave: (changes: Partial<Words>) => Promise<unknown>;
}

export function DescribeDialog({ title, words, onClose, onSave }: Props) {
  const [name, setName] = useState(words.name ?? "");
  const [note, setNote] = useState(words.note);
  const [tags, setTags] = useState(words.tags.join(" "));
  const act = async () => {
    const now = tags.split(/[\s,]+/).filter(Boolean);
    const changes: Partial<Words> = {
      ...(words.name === undefined || name.trim() === words.name ? {} : { name: name.trim() }),
      ...(note === words.note ? {} : { note: note.trim() }),
      ...(now.join(" ") === words.tags.join(" ") ? {} : { tags: now }),
    };
    if (Object.keys(changes).length > 0) await onSave(changes);
    onClose();
  };
  return (
    <FormDialog title={title} does="Save" onClose={onClose} act={act}>
      {words.name !== undefined && (
        <Field label="Name" hint="Letters, digits and _ . + - without blanks. Left empty, the run is called by its kind and day.">
          {(given) => <input {...given} className="input" maxLength={100} value={name} onChange={(event) => setName(event.target.value)} />}
        </Field>
      )}
      <Field label="Note" hint="One line.">
        {(given) => <input {...given} className="input" maxLength={2000} value={note} onChange={(event) => setNote(event.target.value)} />}
      </Field>
      <Field label="Tags" hint="Separated by blanks. The list is filtered by them.">
        {(given) => <input {...given} className="input" value={tags} onChange={(event) => setTags(event.target.value)} />}
      </Field>
    </FormDialog>
  );
}
