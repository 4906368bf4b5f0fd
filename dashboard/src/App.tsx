/** The frame around every page, and which page is shown. */
import { lazy, type ReactNode, Suspense, useEffect, useRef } from "react";
import type { Me } from "./api/types";
import { useResource, useToken } from "./lib/hooks";
import { type Route, useRoute } from "./lib/router";
import { RunsPage } from "./pages/runs/RunsPage";
import { SignIn } from "./pages/SignIn";
import { MeContext } from "./lib/me";
import { Bar } from "./ui/Bar";
import { Empty, Failure } from "./ui/Messages";

const RunPage = lazy(() => import("./pages/run/RunPage"));
const ComparePage = lazy(() => import("./pages/compare/ComparePage"));
const QueuePage = lazy(() => import("./pages/queue/QueuePage"));
const ModelsPage = lazy(() => import("./pages/models/ModelsPage"));
const NewRunPage = lazy(() => import("./pages/new/NewRunPage"));
const UsersPage = lazy(() => import("./pages/users/UsersPage"));

export function App() {
  const token = useToken();
  return token ? <SignedIn key={token} /> : <SignIn />;
}

function SignedIn() {
  const route = useRoute();
  const me = useResource<Me>("me");
  const main = useRef<HTMLElement>(null);
  const page = route.parts.slice(0, 2).join("/");
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else {
      main.current?.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
  }, [page]);
  return (
    <MeContext value={me.data ?? null}>
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <Bar route={route} />
      <main className="page" id="main" tabIndex={-1} ref={main}>
        {me.error !== null && me.data === undefined ? (
          <Failure error={me.error} onRetry={() => void me.reload()} />
        ) : (
          <Suspense fallback={<p className="loading">Loading …</p>}>{pageOf(route)}</Suspense>
        )}
      </main>
    </MeContext>
  );
}

function pageOf(route: Route): ReactNode {
  const [page = "runs", id] = route.parts;
  switch (page) {
    case "runs":
      return id ? <RunPage key={id} run={id} route={route} /> : <RunsPage route={route} />;
    case "compare":
      return <ComparePage route={route} />;
    case "queue":
      return <QueuePage />;
    case "models":
      return <ModelsPage route={route} />;
    case "new":
      return <NewRunPage />;
    case "users":
      return <UsersPage />;
    default:
      return (
        <Empty title="There is no such page">
          <a href="#/runs">All runs</a>
        </Empty>
      );
  }
}
