// The dashboard of lbd: its frame, and which page is in it.

import { Fragment, render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { hasPath } from "./api.ts";
import { Daemon, useDaemonStream } from "./daemon.ts";
import type { DaemonState } from "./model.ts";
import { Cluster } from "./pages/cluster.tsx";
import { Clusters } from "./pages/clusters.tsx";
import { Events } from "./pages/events.tsx";
import { Explain } from "./pages/explain.tsx";
import { Fleet } from "./pages/fleet.tsx";
import { Change, History } from "./pages/history.tsx";
import { Push } from "./pages/push.tsx";
import { Store } from "./pages/store.tsx";
import { Target, Targets } from "./pages/targets.tsx";
import { Xds } from "./pages/xds.tsx";
import { Banner } from "./parts/banner.tsx";
import { Title, useNow } from "./parts/basics.tsx";
import { Notice, Prompt, TokenInUse } from "./parts/token.tsx";
import { href, parsePlace, type Place } from "./route.ts";

const pages: { path: string; label: string }[] = [
  { path: "clusters", label: "Clusters" },
  { path: "targets", label: "Targets" },
  { path: "xds", label: "xDS" },
  { path: "store", label: "Store" },
  { path: "fleet", label: "Fleet" },
  { path: "events", label: "Events" },
  { path: "history", label: "History" },
  { path: "explain", label: "Explain" },
  { path: "push", label: "Push" },
];

function page({ path, query }: Place) {
  const [first = "clusters", name] = path;
  if (name !== undefined && !hasPath(name) && (first === "clusters" || first === "targets")) return <Pathless name={name} />;
  switch (first) {
    case "clusters":
      return name ? <Cluster name={name} target={query.get("target") ?? undefined} /> : <Clusters query={query} />;
    case "targets":
      return name ? <Target name={name} /> : <Targets />;
    case "xds":
      return <Xds />;
    case "events":
      return <Events query={query} />;
    case "history":
      return name ? <Change index={name} query={query} /> : <History query={query} />;
    case "store":
      return <Store />;
    case "fleet":
      return <Fleet />;
    case "explain":
      return <Explain query={query} />;
    case "push":
      return <Push query={query} />;
    default:
      return (
        <>
          <Title text="Page not found" />
          <p>
            There is no page {path.join("/")}. Go to <a href="#/clusters">all clusters</a>.
          </p>
        </>
      );
  }
}

/** A cluster or target for which the API has no URL. */
function Pathless({ name }: { name: string }) {
  return (
    <>
      <Title text={name} />
      <p>
        The API has no URL for a cluster named {name}, which URLs resolve as a path segment. You can{" "}
        <a href={href(["explain"], { cluster: name })}>pick from it</a>, see its <a href={href(["events"], { cluster: name })}>events</a>, and
        find it in the list of <a href="#/clusters">all clusters</a>.
      </p>
    </>
  );
}

/** The name and version of the daemon. */
function Which({ daemon }: { daemon: DaemonState }) {
  return (
    <p class="which">
      <b>{daemon.name}</b>{" "}
      <span class="of" title={daemon.version}>
        {daemon.version.slice(0, 20)}
      </span>
    </p>
  );
}

function Problems({ daemon, known }: { daemon: DaemonState; known: boolean }) {
  const now = useNow();
  return (
    <div class={known ? "" : "old"}>
      <Banner conditions={daemon.conditions} now={now} />
    </div>
  );
}

function Dashboard() {
  // Each visit is a new page, without state of the last one. A page may replace its query
  // without a visit.
  const [{ place, visit }, setVisit] = useState(() => ({ place: parsePlace(location.hash), visit: 0 }));
  useEffect(() => {
    const change = () => setVisit((v) => ({ place: parsePlace(location.hash), visit: v.visit + 1 }));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  const first = useRef(true);
  useEffect(() => {
    // A new page starts with the focus at its title.
    if (!first.current) {
      document.getElementById("title")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    first.current = false;
  }, [visit]);
  const at = place.path[0] ?? "clusters";
  const { daemon, live } = useDaemonStream();
  const content = useMemo(() => page(place), [visit]);
  return (
    <Daemon.Provider value={daemon}>
      <a
        class="skip" href="#main"
        onClick={(e) => {
          e.preventDefault(); // the fragment is the address of the page
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <header>
        <a class="brand" href="#/clusters" aria-label="lbd, all clusters">
          lbd
        </a>
        <nav aria-label="Pages">
          <ul>
            {pages.map((p) => (
              <li key={p.path}>
                <a href={`#/${p.path}`} aria-current={at === p.path ? "page" : undefined}>
                  {p.label}
                </a>
              </li>
            ))}
            <li>
              <a href="docs">API</a>
            </li>
          </ul>
        </nav>
        <TokenInUse />
        {daemon && <Which daemon={daemon} />}
      </header>
      <Notice />
      {daemon && <Problems daemon={daemon} known={live.state === "live"} />}
      <main id="main" tabIndex={-1}>
        <Fragment key={visit}>{content}</Fragment>
      </main>
      <Prompt />
    </Daemon.Provider>
  );
}

const root = document.getElementById("dashboard");
if (root) render(<Dashboard />, root);
