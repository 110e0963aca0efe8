#!/bin/sh
# Gets an order, and waits while the cluster has too much to do: orders.sh NUMBER
# Needs lbd-curl in PATH, and lbd at the address LBD, with a cluster orders.
set -eu

number=$1
for pause in 1 2 4 0; do
	result=0
	lbd-curl -fsS --max-time 10 "http://orders.lbd/items/$number" || result=$?
	case $result in
	101 | 102) sleep "$pause" ;; # circuit_broken, unavailable: later
	*) exit "$result" ;;         # done; dropped and other errors are final
	esac
done
exit "$result"
