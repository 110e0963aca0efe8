#!/bin/sh
# Sends requests to the endpoints that lbd picks: one with a lease, then some from a batch that a long poll updates.
#	shell.sh CLUSTER [PATH]
# LBD is the URL of lbd (default http://localhost:8080). Needs curl, sed and shuf.
set -eu
lbd=${LBD:-http://localhost:8080}
cluster=$1
path=${2:-/}

# One request with a lease, which counts as in flight until done: for circuit breaking, or for long requests.
leased() {
	pick=$(curl -fsS -X POST "$lbd/pick?cluster=$cluster&ttl=30s")
	address=$(printf %s "$pick" | sed 's/.*"address":"\([^"]*\)".*/\1/')
	lease=$(printf %s "$pick" | sed 's/.*"lease":{"id":"\([^"]*\)".*/\1/')
	outcome=success
	curl -fsS -o /dev/null "http://$address$path" || outcome=error
	curl -fsS -o /dev/null -d "{\"outcome\":\"$outcome\"}" "$lbd/v1/leases/$lease/done"
	echo "leased: $address $outcome"
}

# The cheap way: 100 picks in one answer, again when the cluster changes, and at least every 30 s.
# A poll in progress continues for up to 30 s after this script ends.
follow() {
	index=0
	while :; do
		state=$(curl -fs "$lbd/v1/clusters/$cluster?endpoints=false&index=$index&wait=30s") &&
			index=$(printf %s "$state" | sed 's/.*"generation":\([0-9]*\).*/\1/') &&
			curl -fs -H 'Accept: text/plain' "$lbd/pick?cluster=$cluster&n=100" >"$picks.new" &&
			mv "$picks.new" "$picks" || sleep 1 # keep using the last batch
	done
}

leased
picks=$(mktemp)
follow &
trap 'kill $!; rm -f "$picks" "$picks.new"' EXIT
while [ ! -s "$picks" ]; do sleep 0.1; done
for _ in 1 2 3; do echo "batch: $(shuf -n 1 "$picks")"; done
