/** How far an export is, asked every two seconds until it is over; then the model is downloaded from here. */
import type { Export } from "../../../api/types";
import { useResource } from "../../../lib/hooks";
import { href } from "../../../lib/router";
import { Download, Loading, useFiles } from "../../models/Download";
import { CopyButton } from "../../../ui/CopyButton";
import { Loaded } from "../../../ui/Messages";
import { runPath } from "../context";

const WORDS: Record<Export["status"], string> = {
  none: "It has not begun.",
  running: "The model is being written.",
  done: "The model is written.",
  failed: "The export failed.",
};

export function ExportState({ run, model }: { run: string; model: string | null }) {
  const path = runPath(run, "/export", { model });
  const state = useResource<Export>(path, (now) => (now?.status === "done" || now?.status === "failed" ? false : 2000));
  return (
    <Loaded of={state}>
      {(now) => (
        <>
          <div role="status" className={`note ${now.error ? "bad" : now.folder ? "good" : ""}`}>
            <strong>{WORDS[now.status]}</strong>
            {now.error && <span>{now.error}</span>}
            {now.folder && (
              <>
                <code>{now.folder}</code>
                <span>
                  <CopyButton text={now.folder} label="Copy the folder" />
                </span>
              </>
            )}
          </div>
          {now.model && <Away id={now.model} />}
        </>
      )}
    </Loaded>
  );
}

function Away({ id }: { id: string }) {
  const files = useFiles(id);
  return (
    <>
      <Download id={id} files={files} />
      <Loading lines={files.data?.load ?? []} />
      <a href={href(["models", id])}>The model's page: files, measurements, how it was made</a>
    </>
  );
}
