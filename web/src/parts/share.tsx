// What this replica has of a limit of the fleet, on the page of a cluster.

import { count } from "../format.ts";
import type { ClusterCounts, ClusterState, FleetShare } from "../model.ts";

type Fill = NonNullable<ClusterCounts["breaker"]>;

/** The share, the limit and the demand, of each leaf; nothing without a limit of the fleet. */
export function Shares({ state, counts }: { state: ClusterState; counts: ClusterCounts | null }) {
  const fills = new Map<string, Fill>((counts?.leaves ?? []).map((l) => [l.name, l.breaker]));
  const all = state.leaves?.length
    ? state.leaves.map((l) => ({ name: l.name, fleet: l.circuit_breaker?.fleet, fill: fills.get(l.name) }))
    : [{ name: "", fleet: state.circuit_breaker?.fleet, fill: counts?.breaker }];
  const shared = all.filter((s) => s.fleet !== undefined);
  if (shared.length === 0) return null;
  return (
    <div>
      <dt>
        Limit of the <a href="#/fleet">fleet</a>
      </dt>
      <dd>
        {shared.map((s) => (
          <div key={s.name}>
            {s.name && `${s.name}: `}
            <Share of={s.fleet!} fill={s.fill} />
          </div>
        ))}
      </dd>
    </div>
  );
}

/** Share and demand change without another state: those of the counts are newer. */
function Share({ of: f, fill }: { of: FleetShare; fill?: Fill }) {
  if (!f.joined) return <span class="warn">this replica has no share, because it has no session in the store of the fleet</span>;
  const share = fill?.share ?? f.share;
  const demand = fill?.demand ?? f.demand;
  return (
    <>
      this replica has a share of {count(share)} of {count(f.limit || (fill?.max_requests ?? 0))},{" "}
      <span class={demand > share ? "warn" : ""}>demand {count(demand)}</span>
    </>
  );
}
