/** How far an export is; asked every two seconds until it is over. */
import type { Export } from "../../../api/types";
import { useResource } from "../../../lib/hooks";
import { CopyButton } from "../../../ui/CopyButton";
import { Loaded } from "../../../ui/Messages";
import { runPath } from "../context";

const WORDS: Record<Export["status"], string> = {
  none: "It has not begun.",
  running: "The result is being written.",
  done: "The result is written.",
  failed: "The export failed.",
};

export function ExportState({ run }: { run: string }) {
  const state = useResource<Export>(runPath(run, "/export"), (now) => (now?.status === "done" || now?.status === "failed" ? false : 2000));
  return (
    <Loaded of={state}>
      {(now) => (
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
      )}
    </Loaded>
  );
}
