/** The settings of the run, beside their defaults. */
import { writeJson } from "../../lib/bigJson";
import { useStored } from "../../lib/hooks";
import type { Gate, Metric } from "../../api/types";
import { NONE, plural, setting, words } from "../../lib/format";
import { limited } from "../../panels/words";
import { useSettings } from "../../lib/settings";
import { Coded } from "../../ui/Coded";
import { CopyButton } from "../../ui/CopyButton";
import { useRun } from "./context";
import { Sheet } from "../../ui/Sheet";

export default function SettingsTab() {
  const { shown, overview } = useRun();
  const gates = (overview.shown.data?.panels ?? []).flatMap((panel) => (panel.kind === "gates" ? panel.gates : []));
  const settings = useSettings(shown.kind);
  const [only, setOnly] = useStored("settings.only", false);
  const { schema, defaults } = settings.data ?? {};
  const rows = Object.entries(shown.config).map(([name, value]) => {
    const standard = defaults?.[name];
    return { name, value, standard, changed: standard !== undefined && JSON.stringify(standard) !== JSON.stringify(value) };
  });
  const changed = rows.filter((row) => row.changed);
  const described = rows.some((row) => schema?.properties?.[row.name]?.description);
  return (
    <>
      <div className="filters">
        <label className="check">
          <input type="checkbox" checked={only} onChange={(event) => setOnly(event.target.checked)} />
          Only what is not the default
        </label>
        <span className="quiet small">
          {plural(rows.length, "setting")}, {changed.length} not the default
        </span>
        <CopyButton text={writeJson(shown.config, 2)} label="Copy as JSON" />
      </div>
      <Sheet label="Settings">
        <table className="table settings">
          <thead>
            <tr>
              <th scope="col">Setting</th>
              <th scope="col">Value</th>
              <th scope="col">Default</th>
              {described && <th scope="col">Description</th>}
            </tr>
          </thead>
          <tbody>
            {(only ? changed : rows).map((row) => (
              <tr key={row.name}>
                <th scope="row" className="mono">{row.name}</th>
                <td>
                  <Value value={row.value} changed={row.changed} gates={gates} />
                </td>
                <td className={row.changed ? "quiet" : "quiet nowrap"}>{row.changed ? setting(row.standard) : row.standard === undefined ? "–" : "the same"}</td>
                {described && <td className="soft"><Coded text={schema?.properties?.[row.name]?.description ?? ""} /></td>}
              </tr>
            ))}
          </tbody>
        </table>
      </Sheet>
    </>
  );
}

/** A setting's value; a list of structures, such as a pipeline's phases, with an entry for each that opens. */
function Value({ value, changed, gates }: { value: unknown; changed: boolean; gates: Gate[] }) {
  if (Array.isArray(value) && value.length > 0 && value.every(isNamed)) {
    return value.map((entry, index) => (
      <details key={index}>
        <summary>
          {index + 1} {changed ? <b>{entry.name}</b> : entry.name}
        </summary>
        <pre className="small">{writeJson(entry, 2)}</pre>
      </details>
    ));
  }
  if (Array.isArray(value) && value.length > 0 && value.every(isGate)) {
    return value.map((gate, index) => (
      <div key={index}>
        {limit(gate, gates.find((one) => one.name.endsWith(` ${gate.metric}`))?.metric)}, else {gate.otherwise}
      </div>
    ));
  }
  return changed ? <b>{setting(value)}</b> : setting(value);
}

/** A gate in the words and the unit of the same gate of a phase. */
function limit({ metric, at_least, at_most }: Limited, shown: Metric | undefined): string {
  const bound = at_least ?? at_most;
  return `${shown?.name ?? words(metric)} ${at_least === null ? "≤" : "≥"} ${bound === null ? NONE : limited(bound, shown?.unit ?? "")}`;
}

interface Limited {
  metric: string;
  at_least: number | null;
  at_most: number | null;
  otherwise: string;
}

function isGate(entry: unknown): entry is Limited {
  return typeof entry === "object" && entry !== null && "metric" in entry && "otherwise" in entry;
}

function isNamed(entry: unknown): entry is { name: string } {
  return typeof entry === "object" && entry !== null && "name" in entry && typeof entry.name === "string";
}
