/** All runs, the newest first. */
import { useEffect, useMemo, useRef, useState } from "react";
import type { Kinds } from "../../api/types";
import { useDebounced, useResource, useTitle } from "../../lib/hooks";
import { useMaySubmit } from "../../lib/currentUser";
import { go, href, replace, type Route } from "../../lib/router";
import { Empty, Failure } from "../../ui/Messages";
import { plural } from "../../lib/format";
import { useRunList } from "./runList";
import { type Bulk, BulkDialog } from "./BulkDialog";
import { ColumnMenu, useHidden } from "./columns";
import { RunsTable } from "./RunsTable";
import { SavedViews } from "./SavedViews";
import { NeedsYou } from "./NeedsYou";
import { STATUSES } from "./statuses";

export function RunsPage({ route }: { route: Route }) {
  const { query } = route;
  const status = query.get("status") ?? "";
  const owner = query.get("owner") ?? "";
  const label = query.get("label") ?? "";
  const tag = query.get("tag") ?? "";
  const phases = query.get("phases") ?? "";
  const kind = query.get("kind") ?? "";
  const sort = query.get("sort") ?? "";
  const order = query.get("order") ?? "";
  const known = useResource<Kinds>("kinds");
  const [text, setText] = useState(query.get("q") ?? "");
  const q = useDebounced(text.trim(), 250);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const view = useRunList(
    useMemo(() => ({ status, owner, q, label, tag, kind, sort, order, parts: phases ? "" : "false" }), [status, owner, q, label, tag, kind, sort, order, phases]),
  );
  const maySubmit = useMaySubmit();
  const [bulk, setBulk] = useState<Bulk | null>(null);
  const [hidden, turn] = useHidden();
  useTitle("Runs");

  const address = { status, owner, q, label, tag, kind, sort, order, phases };
  const put = (changes: Partial<typeof address>, to = go) => {
    const next = { ...address, ...changes };
    // Results are sorted within one kind only.
    const sorted = next.sort === "value" && next.kind === "" ? { sort: "", order: "" } : {};
    to(href(["runs"], { ...next, ...sorted }));
  };
  const given = query.get("q") ?? "";
  const written = useRef(given);
  // The address follows what is typed; what is typed follows an address that came from elsewhere.
  useEffect(() => {
    if (q === written.current) return;
    written.current = q;
    put({ q }, given === "" ? go : replace);
  }, [q]);
  useEffect(() => {
    if (given === written.current) return;
    written.current = given;
    setText(given);
  }, [given]);

  const choose = (run: string) => {
    const next = new Set(chosen);
    if (!next.delete(run)) next.add(run);
    setChosen(next);
  };
  const owners = useMemo(() => [...new Set(view.rows.map((row) => row.owner))].sort(), [view.rows]);
  const filtered = Boolean(status || owner || q || label || tag || kind);
  return (
    <>
      <header className="page-head">
        <h1>Runs</h1>
        <span className="soft" role="status">
          {view.ready ? plural(view.total, "run") : ""}
        </span>
        {maySubmit && (
          <a className="button primary end" href="#/new">
            New run
          </a>
        )}
      </header>
      <NeedsYou />
      <div className="filters" role="search">
        <input
          className="input"
          type="search"
          aria-label="Search runs"
          placeholder="Search names, notes and tags"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <select className="select" aria-label="Status" value={status} onChange={(event) => put({ status: event.target.value })}>
          <option value="">All statuses</option>
          {STATUSES.map((word) => (
            <option key={word}>{word}</option>
          ))}
        </select>
        <select className="select" aria-label="Kind" value={kind} onChange={(event) => put({ kind: event.target.value })}>
          <option value="">Every kind</option>
          {(known.data?.kinds ?? []).map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <select className="select" aria-label="Owner" value={owner} onChange={(event) => put({ owner: event.target.value })}>
          <option value="">Every owner</option>
          {[...new Set([...owners, ...(owner ? [owner] : [])])].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        {[tag, label].filter(Boolean).map((word) => (
          <span key={word} className="tag">
            {word}
          </span>
        ))}
        {filtered && (
          <button
            type="button"
            className="button plain"
            onClick={() => {
              setText("");
              put({ status: "", owner: "", q: "", label: "", tag: "", kind: "" });
            }}
          >
            Clear
          </button>
        )}
        <label className="check">
          <input type="checkbox" checked={phases !== ""} onChange={(event) => put({ phases: event.target.checked ? "1" : "" })} />
          <span>Phases</span>
        </label>
        <ColumnMenu hidden={hidden} onTurn={turn} />
        <SavedViews
          current={href(["runs"], address)}
          onOpen={(view) => {
            setText(new URLSearchParams(view.split("?")[1] ?? "").get("q") ?? "");
            go(view);
          }}
        />
        {chosen.size > 0 && (
          <div className="chosen">
            <span className="small soft">{plural(chosen.size, "run")} chosen</span>
            <button
              type="button"
              className="button"
              disabled={chosen.size < 2}
              onClick={() => go(href(["compare"], { runs: [...chosen].join(",") }))}
            >
              Compare
            </button>
            {maySubmit && (["pause", "cancel"] as const).map((action) => (
              <button key={action} type="button" className="button" onClick={() => setBulk(action)}>
                {action === "pause" ? "Pause" : "Cancel"}
              </button>
            ))}
            <button type="button" className="button plain" onClick={() => setChosen(new Set())}>
              Clear selection
            </button>
          </div>
        )}
      </div>
      {bulk !== null && (
        <BulkDialog
          action={bulk}
          runs={[...chosen]}
          named={(run) => view.rows.find((row) => row.run === run)?.name ?? run}
          onClose={() => setBulk(null)}
          onDone={() => {
            setBulk(null);
            setChosen(new Set());
          }}
        />
      )}
      {view.error !== null && <Failure error={view.error} onRetry={view.retry} />}
      {view.ready && view.rows.length === 0 ? (
        <div className="sheet">
          {filtered ? (
            <Empty title="No runs match">
              <p>Change the filters, or clear them.</p>
            </Empty>
          ) : (
            <Empty title="No runs yet">
              <p>
                Start one under <a href="#/new">New run</a>, or at a terminal:
              </p>
              <code>forge submit --base-models models/code,models/math --base-model models/base</code>
            </Empty>
          )}
        </div>
      ) : (
        <RunsTable view={view} chosen={chosen} onChoose={choose} onWant={view.want} hidden={hidden} kind={kind} sort={sort} order={order} onSort={(by, way) => put({ sort: by, order: way })} />
      )}
    </>
  );
}
