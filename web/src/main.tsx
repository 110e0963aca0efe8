// The dashboard of lbd: its frame, and which page is in it.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { ask } from "./clock.ts";
import { Cluster } from "./pages/cluster.tsx";
import { Clusters } from "./pages/clusters.tsx";
import { Events } from "./pages/events.tsx";
import { Explain } from "./pages/explain.tsx";
import { Push } from "./pages/push.tsx";
import { Target, Targets } from "./pages/targets.tsx";
import { Xds } from "./pages/xds.tsx";
import { Title } from "./parts/basics.tsx";
import { parsePlace, type Place } from "./route.ts";

const pages: { path: string; label: string }[] = [
  { path: "clusters", label: "Clusters" },
  { path: "targets", label: "Targets" },
  { path: "xds", label: "xDS" },
  { path: "events", label: "Events" },
  { path: "explain", label: "Explain" },
  { path: "push", label: "Push" },
];

function page({ path, query }: Place) {
  const [first = "clusters", name] = path;
  // What is about another thing is another component: nothing of the last one stays.
  switch (first) {
    case "clusters": {
      const target = query.get("target") ?? undefined;
      return name ? <Cluster key={`${name} ${target}`} name={name} target={target} /> : <Clusters key={query.toString()} query={query} />;
    }
    case "targets":
      return name ? <Target key={name} name={name} /> : <Targets />;
    case "xds":
      return <Xds />;
    case "events":
      return <Events key={query.toString()} query={query} />;
    case "explain":
      return <Explain key={query.toString()} query={query} />;
    case "push":
      return <Push key={query.toString()} query={query} />;
    default:
      return (
        <>
          <Title text="Not a page" />
          <p>
            Nothing is at {path.join("/")}. Go to <a href="#/clusters">all clusters</a>.
          </p>
        </>
      );
  }
}

function Dashboard() {
  const [place, setPlace] = useState(() => parsePlace(location.hash));
  const first = useRef(true);
  useEffect(() => {
    const change = () => setPlace(parsePlace(location.hash));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  useEffect(() => {
    // Whoever came to a new page begins at its title, not where the last one was left.
    if (!first.current) {
      document.getElementById("title")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    first.current = false;
  }, [place]);
  const at = place.path[0] ?? "clusters";
  return (
    <>
      <a
        class="skip" href="#main"
        onClick={(e) => {
          e.preventDefault(); // the fragment is the place
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
      </header>
      <main id="main" tabIndex={-1}>
        {page(place)}
      </main>
    </>
  );
}

ask().catch(() => undefined); // streams and answers say that lbd is away

const root = document.getElementById("dashboard");
if (root) render(<Dashboard />, root);
