/** What is taken away of a model: a zip of its folder, a GGUF file, single files, and lines that load it. */
import { useState } from "react";
import { explain, save, send } from "../../api/client";
import type { GgufTypes, ModelFiles } from "../../api/types";
import { bytes } from "../../lib/format";
import { useMaySubmit } from "../../lib/currentUser";
import { type Resource, useResource } from "../../lib/hooks";
import { CopyButton } from "../../ui/CopyButton";
import { Icon } from "../../ui/Icon";

export function modelPath(id: string, rest = ""): string {
  return `models/${encodeURIComponent(id)}${rest}`;
}

/** A model's files; asked for again while a process writes them. */
export function useFiles(id: string): Resource<ModelFiles> {
  return useResource<ModelFiles>(modelPath(id, "/files"), (now) => (now?.writing.status === "running" || now?.gguf.status === "running" ? 2000 : false));
}

/** Does something that takes a moment, and says why it failed. */
export function useAct(): [(act: () => Promise<unknown>) => void, string] {
  const [failure, setFailure] = useState("");
  const run = (act: () => Promise<unknown>) => {
    setFailure("");
    act().catch((error: unknown) => setFailure(explain(error)));
  };
  return [run, failure];
}

/** Buttons for whole files, and how far the server is with those that it writes first. */
export function Download({ id, files }: { id: string; files: Resource<ModelFiles> }) {
  const maySubmit = useMaySubmit();
  const [act, failure] = useAct();
  const found = files.data;
  if (!found) return null;
  const ask = (rest: string) => act(() => send(modelPath(id, rest), "POST").then(() => files.reload()));
  const { writing, gguf } = found;
  if (!maySubmit) return found.folder === null ? <p className="soft">This server has no folder of it that it may read.</p> : null;
  return (
    <div className="stack">
      {found.folder === null && (
        <p className="soft">This server may not read the folder of its weights, so there is nothing to download yet. It can write them: as a copy, or made again by the run.</p>
      )}
      <div className="buttons">
        {found.folder === null ? (
          <button type="button" className="button primary" disabled={writing.status === "running"} onClick={() => ask("/folder")}>
            {writing.status === "running" ? "Writing the files …" : "Write its files"}
          </button>
        ) : (
          <button type="button" className="button primary" onClick={() => act(() => save(id, "zip"))}>
            <Icon name="download" />
            Download zip
          </button>
        )}
      </div>
      <div className="buttons">
        {gguf.files.map((file) => (
          <button key={file.type} type="button" className="button" onClick={() => act(() => save(id, `gguf?type=${file.type}`))}>
            <Icon name="download" />
            {`GGUF ${file.type}, ${bytes(file.bytes)}`}
          </button>
        ))}
        {found.folder !== null && <WriteGguf id={id} gguf={gguf} onWrite={(type) => ask(`/gguf?type=${type}`)} />}
      </div>
      {[failure, writing.error, gguf.error].filter(Boolean).map((text) => (
        <p key={text} role="status" className="note bad">{text}</p>
      ))}
    </div>
  );
}

interface WriteGgufProps {
  id: string;
  gguf: ModelFiles["gguf"];
  onWrite: (type: string) => void;
}

/** Has the model written as a GGUF file of a type that the server says it can have. */
function WriteGguf({ id, gguf, onWrite }: WriteGgufProps) {
  const [chosen, setChosen] = useState("F16");
  const answer = useResource<GgufTypes>(modelPath(id, "/gguf-types"));
  if (answer.error !== null) return <span className="soft small">{`No GGUF: ${explain(answer.error)}`}</span>;
  const written = new Set(gguf.files.map((file) => file.type));
  const types = (answer.data?.types ?? []).filter((type) => !written.has(type));
  if (answer.data && types.length === 0) return null;
  const type = types.includes(chosen) ? chosen : types[0];
  const writing = gguf.status === "running";
  return (
    <>
      <select className="select" aria-label="Type of the GGUF file" value={type ?? ""} disabled={type === undefined || writing} onChange={(event) => setChosen(event.target.value)}>
        {type === undefined ? <option value="">types …</option> : types.map((one) => <option key={one}>{one}</option>)}
      </select>
      <button type="button" className="button" disabled={type === undefined || writing} onClick={() => type && onWrite(type)}>
        {writing ? "Writing GGUF …" : "Write as GGUF"}
      </button>
    </>
  );
}

/** How the unpacked model is loaded. */
export function Loading({ lines }: { lines: string[] }) {
  if (lines.length === 0) return null;
  const text = lines.join("\n");
  return (
    <section className="recipe">
      <header>
        <h3>Load it</h3>
        <CopyButton text={text} label="Copy" />
      </header>
      <pre tabIndex={0} aria-label="Lines that load the model">{text}</pre>
      <p className="quiet small">In the folder that the zip was unpacked in.</p>
    </section>
  );
}
