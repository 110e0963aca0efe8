#!/bin/sh
# Calls a cluster's endpoints by lbd's picks: once under a lease, then by a batch of picks that a long poll keeps fresh.
#	shell.sh CLUSTER [PATH]
# LBD is where lbd listens (http://localhost:8080). Needs curl, sed and shuf.
set -eu
lbd=${LBD:-http://localhost:8080}
cluster=$1
path=${2:-/}

# One request, in flight from the pick to done: for circuit breaking, or where requests are long.
leased() {
	pick=$(curl -fsS -X POST "$lbd/pick?cluster=$cluster&ttl=30s")
	address=$(printf %s "$pick" | sed 's/.*"address":"\([^"]*\)".*/\1/')
	lease=$(printf %s "$pick" | sed 's/.*"lease":{"id":"\([^"]*\)".*/\1/')
	outcome=success
	curl -fsS -o /dev/null "http://$address$path" || outcome=error
	curl -fsS -o /dev/null -d "{\"outcome\":\"$outcome\"}" "$lbd/v1/leases/$lease/done"
	echo "leased: $address $outcome"
}

# The cheap way: 100 picks in one answer, again when the cluster changes, and every 30 s in any case.
# A poll that is under way when this script ends goes on for its 30 s.
follow() {
	index=0
	while :; do
		state=$(curl -fs "$lbd/v1/clusters/$cluster?endpoints=false&index=$index&wait=30s") &&
			index=$(printf %s "$state" | sed 's/.*"generation":\([0-9]*\).*/\1/') &&
			curl -fs -H 'Accept: text/plain' "$lbd/pick?cluster=$cluster&n=100" >"$picks.new" &&
			mv "$picks.new" "$picks" || sleep 1 # the picks that are there stay in use
	done
}

leased
picks=$(mktemp)
follow &
trap 'kill $!; rm -f "$picks" "$picks.new"' EXIT
while [ ! -s "$picks" ]; do sleep 0.1; done
for _ in 1 2 3; do echo "batch: $(shuf -n 1 "$picks")"; done
