/** Named views of the list, filters and order together, kept in this browser. */
import { useState } from "react";

const PLACE = "forge.views";

type Views = Record<string, string>;

interface Props {
  /** The address of the view that is shown. */
  current: string;
  onOpen: (address: string) => void;
}

export function SavedViews({ current, onOpen }: Props) {
  const [views, setViews] = useState<Views>(kept);
  const [name, setName] = useState<string | null>(null);
  const shown = Object.keys(views).find((one) => views[one] === current);
  const keep = (next: Views) => {
    window.localStorage.setItem(PLACE, JSON.stringify(next));
    setViews(next);
  };
  const save = (given: string) => {
    if (given.trim()) keep({ ...views, [given.trim()]: current });
    setName(null);
  };
  return (
    <div className="views">
      {Object.keys(views).length > 0 && (
        <select className="select" aria-label="Saved view" value={shown ?? ""} onChange={(event) => onOpen(views[event.target.value] ?? "#/runs")}>
          <option value="">Saved views</option>
          {Object.keys(views).sort().map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      )}
      {shown !== undefined && (
        <button type="button" className="button plain" onClick={() => keep(Object.fromEntries(Object.entries(views).filter(([one]) => one !== shown)))}>
          Forget view
        </button>
      )}
      {name === null && shown === undefined && (
        <button type="button" className="button plain" onClick={() => setName("")}>
          Save view
        </button>
      )}
      {name !== null && (
        <form onSubmit={(event) => { event.preventDefault(); save(name); }}>
          <input className="input" aria-label="Name of the view" placeholder="Name" autoFocus value={name} onChange={(event) => setName(event.target.value)} />
          <button type="submit" className="button">Save</button>
        </form>
      )}
    </div>
  );
}

function kept(): Views {
  try {
    const found = JSON.parse(window.localStorage.getItem(PLACE) ?? "{}") as unknown;
    if (typeof found !== "object" || found === null) return {};
    return Object.fromEntries(Object.entries(found).filter(([, address]) => typeof address === "string" && address.startsWith("#/runs")));
  } catch {
    return {};
  }
}
