/** The frame around every page, and which page is shown. */
import { type ReactNode, Suspense, useEffect, useRef } from "react";
import type { Me } from "./api/types";
import { useResource, useToken } from "./lib/hooks";
import { lazily } from "./lib/lazily";
import { type Route, useRoute } from "./lib/router";
import { RunsPage } from "./pages/runs/RunsPage";
import { SignIn } from "./pages/SignIn";
import { MeContext } from "./lib/currentUser";
import { Bar } from "./ui/frame/Bar";
import { Arriving, Boundary } from "./ui/Boundary";
import { Failure, NotFound } from "./ui/Messages";
import { Newer } from "./ui/frame/Newer";
import { OtherToken } from "./ui/frame/OtherToken";

const RunPage = lazily(() => import("./pages/run/RunPage"));
const ComparePage = lazily(() => import("./pages/compare/ComparePage"));
const QueuePage = lazily(() => import("./pages/queue/QueuePage"));
const ModelsPage = lazily(() => import("./pages/models/ModelsPage"));
const ModelPage = lazily(() => import("./pages/models/ModelPage"));
const PipelinesPage = lazily(() => import("./pages/pipelines/PipelinesPage"));
const NewRunPage = lazily(() => import("./pages/new/NewRunPage"));
const UsersPage = lazily(() => import("./pages/users/UsersPage"));

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
      <OtherToken />
      <Newer />
      <main className="page" id="main" tabIndex={-1} ref={main}>
        {me.error !== null && me.data === undefined ? (
          <Failure error={me.error} onRetry={() => void me.reload()} />
        ) : (
          <Boundary at={route.text}>
            <Suspense fallback={<Arriving />}>{pageOf(route)}</Suspense>
          </Boundary>
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
      return id ? <NotFound route={route} /> : <ComparePage route={route} />;
    case "queue":
      return id ? <NotFound route={route} /> : <QueuePage />;
    case "models":
      return id ? <ModelPage key={id} id={id} /> : <ModelsPage route={route} />;
    case "pipelines":
      return id ? <RunPage key={id} run={id} route={route} /> : <PipelinesPage route={route} />;
    case "new":
      return id ? <NotFound route={route} /> : <NewRunPage key={route.query.toString()} route={route} />;
    case "users":
      return id ? <NotFound route={route} /> : <UsersPage />;
    default:
      return <NotFound route={route} />;
  }
}
