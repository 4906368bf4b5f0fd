/** Facts that have no curve: the champion's components, models, cost. */
import { number, plural, score, words } from "../../../lib/format";
import { Id } from "../../../ui/CopyButton";
import { Time } from "../../../ui/Time";
import { useMerging, useRun } from "../context";

export function RunFacts() {
  const { live, shown, open } = useMerging();
  const parts = Object.entries(shown.champion?.components ?? {});
  return (
    <div className="run-facts">
      {parts.length > 0 && (
        <>
          <p className="quiet small">Parts of the champion's score on the selection slice{shown.config.normalise === "none" ? "" : "; 1 is the best source"}</p>
          <dl className="facts" aria-label="Parts of the champion's score">
            {parts.map(([name, value]) => (
              <div key={name} className="fact-pair">
                <dt>{words(name)}</dt>
                <dd>{score(value)}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
      <dl className="facts">
        {[...live.sources, ...(live.base ? [live.base] : [])].map((source, index) => (
          <div key={source.name + String(index)} className="fact-pair">
            <dt>{index < live.sources.length ? "source" : "base"}</dt>
            <dd>
              {source.recipe_id ? (
                <button type="button" className="link" onClick={() => open(source.recipe_id ?? "")} title={source.path ?? undefined}>
                  {source.name}
                </button>
              ) : (
                source.name
              )}
            </dd>
          </div>
        ))}
        <Pair name="parameters" value={number(shown.parameters)} />
        <Pair name="blocks" value={number(shown.blocks)} />
        <Pair name="device" value={shown.device ?? "–"} />
        {Object.entries(shown.stages).map(([stage, effect]) => (
          <Pair key={stage} name={`weights moved by ${stage}`} value={number(effect)} />
        ))}
        <CommonFacts />
      </dl>
    </div>
  );
}

/** What every run has: what is next, what failed, how far its log goes. */
export function CommonFacts() {
  const { shown } = useRun();
  const word = (task: string) => shown.words[task] ?? task;
  return (
    <>
      {shown.pending.length > 0 && <Pair name="next" value={shown.pending.slice(0, 3).map(word).join(", ") + (shown.pending.length > 3 ? ` and ${shown.pending.length - 3} more` : "")} />}
      {Object.entries(shown.failures).map(([task, attempts]) => (
        <Pair key={task} name="failed" value={`${word(task)}, ${plural(attempts, "attempt")}`} />
      ))}
      {shown.quarantined.length > 0 && <Pair name="quarantined" value={shown.quarantined.map(word).join(", ")} />}
      <div className="fact-pair">
        <dt>last event</dt>
        <dd>
          <Time at={shown.updated_at} />
        </dd>
      </div>
      <div className="fact-pair">
        <dt>chain head</dt>
        <dd>
          <Id id={shown.head} what="chain head" />
        </dd>
      </div>
    </>
  );
}

export function Pair({ name, value }: { name: string; value: string }) {
  return (
    <div className="fact-pair">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
