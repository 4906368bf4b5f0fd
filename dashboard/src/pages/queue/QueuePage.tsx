/** What waits, what is under way, and who works. */
import { invalidate } from "../../api/queries";
import type { Queue as Waiting, QueueRow, Worker, Workers as Devices } from "../../api/types";
import { bytes, duration, NONE, number, plural, setting } from "../../lib/format";
import { useResource, useThrottled, useTitle, useTold } from "../../lib/hooks";
import { href } from "../../lib/router";
import { Empty, Loaded } from "../../ui/Messages";
import { StatusMark } from "../../ui/StatusMark";
import { Time } from "../../ui/Time";
import { Sheet } from "../../ui/Sheet";

const EVERY = 10_000;

export default function QueuePage() {
  const queue = useResource<Waiting>("queue", EVERY);
  const workers = useResource<Devices>("workers", EVERY);
  useTitle("Queue");
  useTold(useThrottled(() => invalidate((path) => path === "queue" || path === "workers"), 1000));
  return (
    <>
      <header className="page-head">
        <h1>Queue</h1>
      </header>
      <Loaded of={queue}>{(data) => <Queue rows={data.runs} />}</Loaded>
      <header className="page-head second">
        <h1>Workers</h1>
      </header>
      <Loaded of={workers}>{(data) => <Workers rows={data.workers} />}</Loaded>
    </>
  );
}

function Queue({ rows }: { rows: QueueRow[] }) {
  if (rows.length === 0) {
    return (
      <div className="sheet">
        <Empty title="The queue is empty">
          <p>
            Start a run under <a href="#/new">New run</a>, or with <code className="nowrap">forge submit …</code>
          </p>
        </Empty>
      </div>
    );
  }
  return (
    <Sheet label="Queue">
      <table className="table">
        <thead>
          <tr>
            {["Run", "Status", "Waits for", "Owner", "Labels"].map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
            <th scope="col" className="num">Priority</th>
            <th scope="col" className="num">Done</th>
            <th scope="col">Submitted</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.run}>
              <th scope="row">
                <a className="mono nowrap" href={href(["runs", row.run])}>
                  {row.name}
                </a>
              </th>
              <td>
                <StatusMark status={row.status} />
              </td>
              <td>
                {row.waits_for || <span className="quiet">–</span>}
                {row.helps && <code className="helps">{row.helps}</code>}
              </td>
              <td>{row.owner || "–"}</td>
              <td className="soft">{row.labels.join(", ")}</td>
              <td className="num">{row.priority}</td>
              <td className="num">{row.generation === null ? "–" : plural(row.generation, row.done_unit)}</td>
              <td>
                <Time at={row.submitted_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}

function Workers({ rows }: { rows: Worker[] }) {
  if (rows.length === 0) {
    return (
      <div className="sheet">
        <Empty title="No worker is known">
          <p>A worker takes all of its machine's GPUs, or its CPU:</p>
          <code>forge worker</code>
        </Empty>
      </div>
    );
  }
  return (
    <Sheet label="Workers">
      <table className="table">
        <thead>
          <tr>
            {["Worker", "Status", "Device", "Working on", "Labels"].map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
            <th scope="col" className="num">Memory</th>
            <th scope="col" className="num">Tasks done</th>
            <th scope="col" className="num">In this state for</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name + row.device} className={row.living ? undefined : "gone"}>
              <th scope="row" title={row.profile === null ? undefined : setting(row.profile)}>
                {row.name}
              </th>
              <td>
                <StatusMark status={row.living ? row.status : "gone"} />
              </td>
              <td className="mono">{row.device}</td>
              <td>
                {row.run && (
                  <a className="mono" href={href(["runs", row.run])}>
                    {row.run_name ?? row.run}
                  </a>
                )}{" "}
                <span className="soft">{row.doing || (!row.run && NONE)}</span>
              </td>
              <td className="soft">{row.labels.join(", ")}</td>
              <td className="num nowrap">{bytes(row.memory)}</td>
              <td className="num">{number(row.done)}</td>
              <td className="num nowrap">{duration(row.seconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}
