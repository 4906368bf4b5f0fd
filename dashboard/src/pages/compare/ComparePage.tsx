/** Runs of any kinds side by side. */
import type { SideBySide } from "../../api/types";
import { withQuery } from "../../api/client";
import { useResource, useTitle } from "../../lib/hooks";
import { go, href, type Route } from "../../lib/router";
import { Icon } from "../../ui/Icon";
import { Empty, Loaded } from "../../ui/Messages";
import { RunComparison } from "./RunComparison";
import { RunPicker } from "./RunPicker";

/** Runs that are compared at once, at most: as many as there are colours. */
const MOST = 6;
/** Milliseconds after which runs that have not ended are read again. */
const EVERY = 15_000;
const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

export default function ComparePage({ route }: { route: Route }) {
  const { query } = route;
  const given = [...(query.get("runs") ?? "").split(","), query.get("a") ?? "", query.get("b") ?? ""];
  const names = [...new Set(given.map((name) => name.trim()).filter(Boolean))].slice(0, MOST);
  const put = (next: string[]) => go(href(["compare"], { runs: next.join(",") }));
  const compared = useResource<SideBySide>(names.length < 2 ? null : withQuery("compare", { runs: names.join(",") }));
  useTitle("Compare");
  return (
    <>
      <header className="page-head">
        <h1>Compare</h1>
      </header>
      <div className="filters">
        {names.map((name) => (
          <span key={name} className="chip">
            <a className="mono" href={href(["runs", name])}>
              {compared.data?.names[name] ?? name}
            </a>
            <button type="button" className="button plain icon" aria-label={`Leave ${name} out`} onClick={() => put(names.filter((one) => one !== name))}>
              <Icon name="cross" />
            </button>
          </span>
        ))}
        {names.length < MOST && <RunPicker without={names} onPick={(name) => put([...names, name])} />}
      </div>
      {names.length < 2 ? (
        <div className="sheet">
          <Empty title={names.length === 0 ? "Choose two runs or more" : "One more run"}>
            <p>
              Search for a run above, or choose runs in <a href="#/runs">the list</a> and press Compare.
            </p>
          </Empty>
        </div>
      ) : (
        <Compared names={names} />
      )}
    </>
  );
}

function Compared({ names }: { names: string[] }) {
  const answer = useResource<SideBySide>(withQuery("compare", { runs: names.join(",") }), (data) => (data?.heads.every((head) => ENDED.has(head.status)) ? false : EVERY));
  return (
    <Loaded of={answer}>
      {(data) => (
        <div className={answer.stale ? "stale" : undefined}>
          <RunComparison data={data} />
        </div>
      )}
    </Loaded>
  );
}
