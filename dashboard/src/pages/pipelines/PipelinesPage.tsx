/** All pipelines, the newest first: how their phases stand, and what came out. */
import { useMemo, useState } from "react";
import type { PipelineRow } from "../../api/types";
import { bytes, duration, NONE, number, plural } from "../../lib/format";
import { useDebounced, useTitle } from "../../lib/hooks";
import { useMaySubmit } from "../../lib/currentUser";
import { go, href, type Route } from "../../lib/router";
import { Empty, Failure } from "../../ui/Messages";
import { StatusMark, UNDECIDED } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";
import { SortButton, sorted } from "../runs/RunsTable";
import { STATUSES } from "../runs/statuses";
import { PhaseMarks } from "./PhaseMarks";
import { type PipelineFilter, usePipelineList } from "./pipelineList";

/** Heads of the columns, each with the name that it sorts by: "" is the order of submission, null none. */
const HEADS: { head: string; by: string | null; num?: boolean; title?: string }[] = [
  { head: "Status", by: "status" },
  { head: "Pipeline", by: "run" },
  { head: "Phases", by: "done", title: "Sorted by the number of phases that have ended" },
  { head: "Owner", by: "owner" },
  { head: "Bits per byte", by: "quality", num: true, title: "Of the newest measured model that goes on, on the test items; less is better" },
  { head: "Size", by: "bytes", num: true, title: "Bytes of the same model: of its weights, or of the whole file of a compressed model" },
  { head: "Device time", by: "spent", num: true, title: "Device time of all runs of the pipeline" },
  { head: "Submitted", by: "" },
];

export default function PipelinesPage({ route }: { route: Route }) {
  const { query } = route;
  const [status, owner, sort, order] = ["status", "owner", "sort", "order"].map((name) => query.get(name) ?? "") as [string, string, string, string];
  const [text, setText] = useState(query.get("q") ?? "");
  const q = useDebounced(text.trim(), 250);
  const view = usePipelineList(useMemo(() => ({ status, owner, q, sort, order }), [status, owner, q, sort, order]));
  const maySubmit = useMaySubmit();
  const put = (changes: Partial<PipelineFilter>) => go(href(["pipelines"], { status, owner, q, sort, order, ...changes }));
  useTitle("Pipelines");
  const filtered = Boolean(status || owner || q);
  const owners = [...new Set([...view.rows.map((row) => row.owner), ...(owner ? [owner] : [])])].sort();
  return (
    <>
      <header className="page-head">
        <h1>Pipelines</h1>
        <span className="soft" role="status">
          {view.ready ? plural(view.total, "pipeline") : ""}
        </span>
        {maySubmit && (
          <a className="button primary end" href={href(["new"], { kind: "pipeline" })}>
            New pipeline
          </a>
        )}
      </header>
      <div className="filters" role="search">
        <input className="input" type="search" aria-label="Search pipelines" placeholder="Search names and labels" value={text} onChange={(event) => setText(event.target.value)} />
        <select className="select" aria-label="Status" value={status} onChange={(event) => put({ status: event.target.value })}>
          <option value="">All statuses</option>
          {STATUSES.map((word) => (
            <option key={word}>{word}</option>
          ))}
        </select>
        <select className="select" aria-label="Owner" value={owner} onChange={(event) => put({ owner: event.target.value })}>
          <option value="">Every owner</option>
          {owners.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </div>
      {view.error !== null && <Failure error={view.error} onRetry={view.retry} />}
      {view.ready && view.rows.length === 0 ? <Nothing filtered={filtered} /> : (
        <div className="sheet" tabIndex={0} role="region" aria-label="Pipelines" aria-busy={!view.ready}>
          <table className="table pipelines">
            <thead>
              <tr>
                {HEADS.map(({ head, by, num, title }) => (
                  <th key={head} scope="col" className={num ? "num" : undefined} title={title} aria-sort={by === null ? undefined : sorted(by, sort, order)}>
                    {by === null ? head : <SortButton head={head} by={by} sort={sort} order={order} onSort={(name, way) => put({ sort: name, order: way })} />}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {view.rows.map((row) => (
                <Row key={row.run} row={row} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {view.more && (
        <p className="more-rows">
          <button type="button" className="button" disabled={view.busy} onClick={view.more}>
            Show more
          </button>{" "}
          <span className="small soft">{`${view.rows.length} of ${plural(view.total, "pipeline")}`}</span>
        </p>
      )}
    </>
  );
}

function Row({ row }: { row: PipelineRow }) {
  return (
    <tr>
      <td className="p-status">
        <StatusMark status={row.undecided ? UNDECIDED : row.status} />
      </td>
      <th scope="row" className="p-run">
        <a className="mono" href={href(["runs", row.run])}>
          {row.name}
        </a>
        {row.labels.map((label) => (
          <span key={label} className="tag">
            {label}
          </span>
        ))}
      </th>
      <td className="p-phases">
        <PhaseMarks stages={row.stages} />
      </td>
      <td className="p-owner">{row.owner || NONE}</td>
      <td className="num nowrap p-quality">
        {number(row.quality)}
        {row.quality !== null && <small className="card-only quiet"> bits per byte</small>}
      </td>
      <td className="num nowrap p-size">
        {bytes(row.bytes)}
        {row.bytes !== null && <small className="card-only quiet"> in size</small>}
      </td>
      <td className="num nowrap p-spent">
        {duration(row.spent)}
        <small className="card-only quiet"> device time</small>
      </td>
      <td className="p-when">
        <Time at={row.submitted_at} />
      </td>
    </tr>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  return (
    <div className="sheet">
      {filtered ? (
        <Empty title="No pipelines match">
          <p>Change the filters.</p>
        </Empty>
      ) : (
        <Empty title="No pipelines yet">
          <p>
            A pipeline runs phases in a row, with gates between them. Start one under <a href={href(["new"], { kind: "pipeline" })}>New pipeline</a>, or at a terminal:
          </p>
          <code>forge pipeline init; forge pipeline run pipeline.toml</code>
        </Empty>
      )}
    </div>
  );
}
