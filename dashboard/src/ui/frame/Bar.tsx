/** The bar at the top: where one can go, whether the page is live, who is here. */
import { useState } from "react";
import { forget } from "../../api/session";
import type { RunFacts } from "../../api/types";
import { useLiveState, useResource } from "../../lib/hooks";
import { useMaySubmit, useMe } from "../../lib/currentUser";
import type { Route } from "../../lib/router";
import { runPath } from "../../pages/run/context";
import { Brand } from "./Brand";
import { Icon } from "../Icon";
import { useTheme } from "./theme";

const WORDS = { off: "offline", connecting: "connecting", live: "live", reconnecting: "reconnecting" };

function LiveMark() {
  const state = useLiveState();
  return (
    <span className="live" data-state={state} role="status" title={`Live connection: ${WORDS[state]}`}>
      <i aria-hidden="true" />
      <span>{WORDS[state]}</span>
    </span>
  );
}

export function Bar({ route }: { route: Route }) {
  const me = useMe();
  const maySubmit = useMaySubmit();
  const [theme, toggle] = useTheme();
  const [open, setOpen] = useState(false);
  const [page = "runs", id] = route.parts;
  // The page of a run asks for the same: the answer is shared.
  const run = useResource<RunFacts>(page === "runs" && id ? runPath(id) : null);
  const here = page === "runs" && id && run.data?.delegates ? "pipelines" : page;
  const links = [
    ["runs", "Runs"],
    ["pipelines", "Pipelines"],
    ["compare", "Compare"],
    ["queue", "Queue"],
    ["models", "Models"],
    ...(maySubmit ? [["new", "New run"]] : []),
    ...(me?.role === "admin" ? [["users", "Users"]] : []),
  ] as [string, string][];
  return (
    <header className="bar" onKeyDown={(event) => event.key === "Escape" && setOpen(false)}>
      <Brand />
      <button type="button" className="button plain icon bar-menu" aria-expanded={open} aria-controls="nav" aria-label="Menu" onClick={() => setOpen(!open)}>
        <Icon name={open ? "cross" : "menu"} />
      </button>
      <nav id="nav" className="nav" aria-label="Pages" data-open={open}>
        {links.map(([page, label]) => (
          <a key={page} href={`#/${page}`} aria-current={page === here ? "page" : undefined} onClick={() => setOpen(false)}>
            {label}
          </a>
        ))}
      </nav>
      <div className="bar-end">
        <LiveMark />
        {me && (
          <span className="small soft nowrap bar-who" title={`${me.name} may: ${me.role}`}>
            {me.name}
          </span>
        )}
        <button
          type="button"
          className="button plain icon"
          onClick={toggle}
          aria-label={theme === "dark" ? "Light colours" : "Dark colours"}
        >
          <Icon name={theme === "dark" ? "sun" : "moon"} />
        </button>
        <button type="button" className="button plain icon" onClick={forget} aria-label="Sign out">
          <Icon name="out" />
        </button>
      </div>
    </header>
  );
}
