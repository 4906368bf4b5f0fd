/** One run: its header, its tabs, and the time slider under all of them. */
import { type ReactNode, Suspense, useEffect, useMemo, useState } from "react";
import { ApiError, send } from "../../api/client";
import { invalidate } from "../../api/queries";
import { type Action, isMerging, type RunFacts } from "../../api/types";
import { useOwns } from "../../lib/currentUser";
import { useResource, useThrottled, useTitle, useTold } from "../../lib/hooks";
import { lazily } from "../../lib/lazily";
import { go, href, replace, type Route, withParts } from "../../lib/router";
import { PanelPlaceProvider } from "../../panels/context";
import { usePanels } from "../../panels/usePanels";
import { Arriving, Boundary } from "../../ui/Boundary";
import { DescribeDialog } from "../../ui/forms/DescribeDialog";
import { Empty, Failure, NotFound } from "../../ui/Messages";
import { Tabs } from "../../ui/Tabs";
import { RunProvider, runPath } from "./context";
import { asked, queried } from "./moment";
import { Breadcrumb, NotYet } from "./Breadcrumb";
import { eventIndex } from "./eventIndex";
import { ActionDialog } from "./dialogs/ActionDialog";
import { ForkDialog } from "./dialogs/ForkDialog";
import { CandidateDialog } from "./dialogs/CandidateDialog";
import { Header } from "./Header";
import { CommonOverview } from "./overview/CommonOverview";
import { Overview } from "./overview/Overview";
import { snap } from "./nearestBoundary";
import { TimeSlider } from "./TimeSlider";
import { Coded } from "../../ui/Coded";

const Population = lazily(() => import("./population/Population"));
const Lineage = lazily(() => import("./Lineage"));
const Layers = lazily(() => import("./layers/Layers"));
const Events = lazily(() => import("./Events"));
const SettingsTab = lazily(() => import("./SettingsTab"));

const TABS = { overview: "Overview", population: "Population", lineage: "Lineage", layers: "Layers", events: "Events", settings: "Settings" };
/** The tabs of a run whose kind has no page of its own. */
const COMMON = ["overview", "lineage", "events", "settings"];

/** The tabs of a run that only waits. */
const ALWAYS = ["overview", "events", "settings"];

/** Panels of a run with more events are large: they are asked for less often. */
const MANY = 2000;

export default function RunPage({ run, route }: { run: string; route: Route }) {
  const tab = route.parts[2] ?? "overview";
  const moment = asked(route);
  const live = useResource<RunFacts>(runPath(run));
  const isPast = moment.at !== null || moment.upto !== null;
  const past = useResource<RunFacts>(isPast ? runPath(run, "", queried(moment)) : null);
  const settled = !isPast || (past.data !== undefined && !past.stale);
  const delegates = live.data?.delegates ?? false;
  const family = live.data?.part_of?.run ?? run;
  // A position in the log means a place of the run's history, which the server says.
  const at = moment.at ?? (isPast ? (past.data?.place ?? 1) : null);
  const overview = usePanels(run, moment.at, moment.upto);
  const owns = useOwns();
  const [dialog, setDialog] = useState<Action | null>(null);
  const [describing, setDescribing] = useState(false);
  const [snapped, setSnapped] = useState<{ why: string; at: number } | null>(null);
  const index = useMemo(() => eventIndex(run, delegates), [run, delegates]);
  useTitle(live.data?.name ?? run);

  const places = live.data?.places ?? 0;
  const again = (large: boolean) => {
    const prefix = runPath(run);
    // The past, single events and a recipe's layers stay as they are.
    const fixed = /[?&](at|upto)=|\/events|\/moments|\/layers/;
    const own = (path: string) => path === prefix || path.startsWith(`${prefix}/`);
    invalidate((path) => own(path) && !fixed.test(path) && (path.includes("generation=all") || (path === `${prefix}/panels` && places > MANY)) === large);
  };
  const fresh = useThrottled(() => again(false), 600);
  const freshAll = useThrottled(() => again(true), 5000);
  useTold((told) => {
    // Runs of one pipeline change each other's pages: their names begin with its name.
    const near = told.run === run || told.run === family || (told.run?.startsWith(`${family}.`) ?? false);
    if (told.type !== "reconnected" && !near) return;
    if (told.event && (told.run === run || delegates)) index.take(told.event);
    fresh();
    freshAll();
  });

  // A run without runs of its own is moved over by its own places.
  useEffect(() => {
    if (live.data && !delegates && moment.at === null && moment.upto !== null && settled && past.data) replace(withParts(route, { at: past.data.place }));
  }, [live.data, delegates, moment.at, moment.upto, settled, past.data, route]);

  // A place inside of one append is none: the nearest one that is, in the direction of travel.
  useEffect(() => {
    const nearest = moment.at !== null && past.error instanceof ApiError ? snap(past.error.problem, moment.at) : null;
    if (nearest === null || !(past.error instanceof ApiError)) return;
    setSnapped({ why: past.error.message, at: nearest });
    replace(withParts(route, { at: nearest }));
  }, [past.error, moment.at, route]);

  if (!live.data) {
    if (live.error instanceof ApiError && live.error.status === 404) {
      return (
        <Empty title="There is no such run">
          <p className="sentence"><Coded text={live.error.message} /></p>
          <a href="#/runs">All runs</a>
        </Empty>
      );
    }
    return live.error ? <Failure error={live.error} onRetry={() => void live.reload()} /> : <p className="loading">Loading …</p>;
  }
  if (moment.at === null && past.error instanceof ApiError && past.error.status === 404) {
    return <NotYet run={live.data} upto={moment.upto} now={withParts(route, { upto: null })} />;
  }
  if (!(tab in TABS) || route.parts.length > 3) return <NotFound route={route} />;
  const shown = (isPast ? past.data : live.data) ?? live.data;
  const merging = isMerging(shown);
  const graphs = (overview.newest ?? overview.shown.data)?.panels.some((panel) => panel.kind === "graph") ?? tab === "lineage";
  const begun = shown.status !== "submitted" || shown.place > 1;
  const has = (id: string) => (merging ? begun : COMMON.includes(id) && (id !== "lineage" || graphs)) || ALWAYS.includes(id);
  const open = (candidate: string) => replace(withParts(route, { candidate }));
  const candidate = route.query.get("candidate");
  const pastFailed = isPast && past.error !== null && !(moment.at !== null && past.error instanceof ApiError && snap(past.error.problem, moment.at));
  return (
    <RunProvider value={{ live: live.data, shown, at, settled, overview, open }}>
      <PanelPlaceProvider value={{ run, at: moment.at, upto: moment.upto, pick: merging ? open : null, mayAct: at === null && owns(live.data.owner) }}>
      <div className="run" data-past={at !== null} data-tab={tab}>
        {live.data.part_of && <Breadcrumb part={live.data.part_of} upto={moment.upto} />}
        <Header onAction={setDialog} onDescribe={() => setDescribing(true)} />
        <Tabs
          label="Parts of the run"
          tabs={Object.entries(TABS).filter(([id]) => has(id)).map(([id, label]) => ({ id, label }))}
          current={tab}
          onPick={(id) => go(href(["runs", run, ...(id === "overview" ? [] : [id])], { ...moment }))}
        />
        <div className="run-body" role="tabpanel" id={`panel-${tab}`} aria-labelledby={`tab-${tab}`} tabIndex={-1}>
          {live.error !== null && <Failure error={live.error} onRetry={() => void live.reload()} />}
          {pastFailed && <Failure error={past.error} />}
          <div className={isPast && past.stale ? "stale" : undefined}>
            <Boundary at={route.text}>
              <Suspense fallback={<Arriving />}>{bodyOf(has(tab) ? tab : "overview", merging)}</Suspense>
            </Boundary>
          </div>
        </div>
        <TimeSlider route={route} index={index} snapped={snapped && snapped.at === moment.at ? snapped.why : null} onFork={() => setDialog("fork")} />
        {describing && (
          <DescribeDialog
            title={`Describe ${live.data.name}`}
            words={{ name: live.data.name, note: live.data.note, tags: live.data.tags }}
            onClose={() => setDescribing(false)}
            onSave={async (changes) => {
              await send(runPath(run), "PATCH", changes);
              invalidate((path) => path.startsWith(runPath(run)) || path.startsWith("runs?") || path === "queue");
            }}
          />
        )}
        {dialog === "fork" && <ForkDialog onClose={() => setDialog(null)} />}
        {dialog !== null && dialog !== "fork" && <ActionDialog action={dialog} onClose={() => setDialog(null)} />}
        {candidate && merging && <CandidateDialog id={candidate} onClose={() => replace(withParts(route, { candidate: null }))} />}
      </div>
      </PanelPlaceProvider>
    </RunProvider>
  );
}

function bodyOf(tab: string, merging: boolean): ReactNode {
  switch (tab) {
    case "population":
      return <Population />;
    case "lineage":
      return <Lineage />;
    case "layers":
      return <Layers />;
    case "events":
      return <Events />;
    case "settings":
      return <SettingsTab />;
    default:
      return merging ? <Overview /> : <CommonOverview />;
  }
}
