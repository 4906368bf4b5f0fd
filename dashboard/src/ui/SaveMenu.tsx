/** A menu whose entries fetch files: it says that they are being written, and what went wrong. */
import { type ReactNode, useRef, useState } from "react";
import { explain } from "../api/client";

interface Props {
  className: string;
  /** The menu's button, a `summary`. */
  button: ReactNode;
  label: string;
  /** Words of an entry, and what it fetches. */
  entries: readonly (readonly [string, () => Promise<void>])[];
}

export function SaveMenu({ className, button, label, entries }: Props) {
  const [state, setState] = useState("");
  const menu = useRef<HTMLDetailsElement>(null);
  const get = async (act: () => Promise<void>) => {
    setState("Writing …");
    try {
      await act();
      setState("");
      if (menu.current) menu.current.open = false;
    } catch (error) {
      setState(explain(error));
    }
  };
  return (
    <details className={`columns ${className}`} ref={menu}
      onKeyDown={(event) => event.key === "Escape" && menu.current && (menu.current.open = false)}
      onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && (event.currentTarget.open = false)}>
      {button}
      <div className="columns-list" role="group" aria-label={label}>
        {entries.map(([word, act]) => (
          <button key={word} type="button" className="button plain" onClick={() => void get(act)}>
            {word}
          </button>
        ))}
        <span role="status" className="quiet small">
          {state}
        </span>
      </div>
    </details>
  );
}
