# shellcheck shell=sh
# Picks of lbd for POSIX shells, to be read with the command `.`: needs curl 7.55 or later, and head.
#
#	lbd_pick CLUSTER [EXCLUDED…]         prints an address
#	lbd_lease CLUSTER TTL [EXCLUDED…]    prints an address and the ID of a lease
#	lbd_done LEASE OUTCOME [LIMIT]       ends a lease: success, error, cancelled or unreachable
#	lbd_renew LEASE TTL                  sets a new end, counted from now
#	lbd_unreachable CLUSTER ADDRESS      says that there was no connection to an address without a lease
#
# CLUSTER may be a target, xds:///NAME, whose routes choose the cluster by lbd_path and lbd_headers, lines NAME=VALUE.
# LBD_HASH_KEY is the hash key, for a cluster with ring_hash.
#
# TTL and LIMIT (1000 by default) are in milliseconds, and lbd_wait is how many milliseconds a pick may wait. lbd_pick
# and lbd_lease return 0, or 100 to 104 (see lbd_reject) with a message on standard error. While lbd is unreachable,
# they print LBD_FALLBACK, without a lease. lbd_done returns 1 if lbd does not know the lease, because it has expired or
# lbd was restarted, and 2 if lbd does not end it. All run in subshells and set no variable, and work with `set -eu`. No
# process shows the token in its arguments, nor does `set -x`.

lbd_wait=${lbd_wait:-5000}

lbd_pick() (
	set +e
	lbd_ask GET 0 "$@"
)

lbd_lease() (
	set +e
	cluster=$1 ttl=$2
	shift 2
	lbd_ask POST "$ttl" "$cluster" "$@"
)

# At the end of a process, a client waits for lbd for 1 s at most. A lease that did not end then expires.
lbd_done() (
	set +e
	lbd_call POST "/v1/leases/$1/done" "${3:-1000}" -H 'Content-Type: application/json' -d "{\"outcome\":\"$2\"}"
	case $ended/$status in 0/200) ;; 0/404) exit 1 ;; *) exit 2 ;; esac
)

lbd_renew() (
	set +e
	lbd_call POST "/v1/leases/$1/renew" 2000 -G -d "ttl=${2}ms"
	[ "$ended/$status" = 0/200 ]
)

lbd_unreachable() (
	set +e
	name=$(printf %s "$1" | sed 's/["\\]/\\&/g')
	reporter=$(uname -n)/$$/$(od -An -N4 -tx1 /dev/urandom | tr -d ' \n')
	endpoint="{\"address\":\"$2\",\"connect_failures\":1}"
	lbd_call POST /v1/reports 2000 -H 'Content-Type: application/json' \
		-d "{\"reporter\":\"$reporter\",\"clusters\":[{\"cluster\":\"$name\",\"endpoints\":[$endpoint]}]}"
	[ "$ended/$status" = 0/200 ]
)

# lbd_ask METHOD TTL CLUSTER EXCLUDED… picks, and prints the address, and the lease of a POST.
lbd_ask() {
	method=$1 ttl=$2 cluster=$3
	shift 3
	excluded=$#
	for address do set -- "$@" --data-urlencode "exclude=$address"; done
	shift "$excluded"
	if [ "$method" = POST ]; then
		set -- "$@" -d "ttl=${ttl}ms" --data-urlencode "owner=${LBD_OWNER:-$(uname -n)/$$}"
	fi
	case $cluster in
	xds:///*)
		set -- "$@" --data-urlencode "target=${cluster#xds:///}" --data-urlencode "path=${lbd_path:-/}"
		while IFS= read -r line; do
			[ -z "$line" ] || set -- "$@" --data-urlencode "header.$line"
		done <<END
${lbd_headers:-}
END
		;;
	*) set -- "$@" --data-urlencode "cluster=$cluster" ;;
	esac
	[ -z "${LBD_HASH_KEY:-}" ] || set -- "$@" --data-urlencode "hash=$(printf %s "$LBD_HASH_KEY" | head -c 1024)"
	lbd_call "$method" /v1/pick "$((lbd_wait + 1000))" -G "$@" -d "wait=${lbd_wait}ms"
	lbd_answer
	result=$?
	if [ "$result" = 106 ]; then
		lbd_address
		result=102 text="lbd is unreachable: $method /v1/pick at $address ($found): $text"
		if [ -n "${LBD_FALLBACK:-}" ] && [ "$excluded" = 0 ]; then
			result=0 text=$LBD_FALLBACK
		fi
	fi
	if [ "$result" = 0 ]; then
		printf '%s\n' "$text"
	else
		printf 'lbd: cluster %s: %s\n' "$cluster" "$text" >&2
	fi
	return "$result"
}

# lbd_call METHOD PATH MILLISECONDS CURL-OPTION… calls lbd. Sets status, body, and ended: the exit status of curl.
lbd_call() {
	verb=$1 path=$2 limit=$3
	shift 3
	lbd_address
	case $address in
	unix:*)
		address=${address#unix:}
		set -- "$@" --unix-socket "${address#//}"
		address=http://localhost
		;;
	esac
	[ -z "${LBD_CA:-}" ] || set -- "$@" --cacert "$LBD_CA"
	answer=$({
		lbd_header | curl -q -sS -X "$verb" -A lbd-client-shell -H @- --noproxy '*' -w '\n%{http_code}' \
			--max-time "$((limit / 1000)).$((limit % 1000 / 100))" "$@" "${address%/}$path" 2>&1
		printf ' %s' "$?"
	} | head -c 65536)
	ended=${answer##* } answer=${answer% *}
	status=${answer##*"$lbd_newline"} body=${answer%"$lbd_newline"*}
	body=${body%"$lbd_newline"}
}

lbd_newline='
'

# lbd_address sets address to that of lbd, and found to how it was found.
lbd_address() {
	found='default; set LBD'
	if [ -n "${LBD:-}" ]; then
		address=$LBD found='the setting LBD'
	elif [ -S /run/lbd.sock ]; then
		address=unix:/run/lbd.sock
	elif [ -S /run/lbd/lbd.sock ]; then
		address=unix:/run/lbd/lbd.sock
	else
		address=http://localhost:8080
	fi
}

# lbd_header prints the header with the token, if there is one. The file is read for each call.
lbd_header() {
	set +x
	token=${LBD_TOKEN:-}
	if [ -z "$token" ] && [ -r "${LBD_TOKEN_FILE:-}" ]; then
		IFS=' ' read -r token <"$LBD_TOKEN_FILE"
	fi
	case $token in
	'' | *[![:graph:]]*) ;; # lbd rejects the call
	*) printf 'Authorization: Bearer %s\n' "$token" ;;
	esac
}

# lbd_answer sets text to what the answer has, and returns 0; or to a message, and returns its exit status: 106 if lbd
# is unreachable.
lbd_answer() {
	case $ended in
	0) ;;
	[0-9] | [0-9][0-9] | [0-9][0-9][0-9])
		text=$(printf %s "${body##*curl: }" | head -c 300 | tr '[:cntrl:]' ' ')
		text=${text:-curl ended with status $ended}
		return 106
		;;
	*)
		text="the answer has more than 64 KiB"
		return 106
		;;
	esac
	case $status/$body in
	20[01]/'{'*'}') lbd_endpoint ;;
	*) lbd_reject ;;
	esac
}

# lbd_endpoint sets text to the address in body, and to the lease of a POST.
lbd_endpoint() {
	lbd_string address || text=
	found=$text
	case $found in
	*[!][0-9A-Za-z.:_-]* | *:*[!0-9] | *:) found= ;;
	*:*) ;;
	*) found= ;;
	esac
	if [ "$method" = POST ]; then
		text=
		case $body in *'"lease":'*)
			body=${body#*'"lease":'}
			lbd_string id || text=
			;;
		esac
		case $text in '' | *[!0-9A-Za-z]*) found= ;; *) found="${found:+$found $text}" ;; esac
	fi
	text=${found:-the answer has no endpoint}
	[ -n "$found" ] || return 106
}

# lbd_reject sets text to the reason of an answer that rejects, and returns its exit status.
lbd_reject() {
	lbd_string code || text=
	code=$text
	case $code/$status in
	/401 | /403) code=permission_denied ;;
	/429) code=429 ;;
	/*)
		text="status $status without a code"
		return 106
		;;
	esac
	lbd_string detail || lbd_string title || text="status $status"
	detail=$text
	if [ "$code" = dropped ] && lbd_string category; then detail="$detail by $text"; fi
	text="$detail ($code)"
	case $code in
	dropped) return 100 ;;
	circuit_broken) return 101 ;;
	unknown_cluster | unknown_target) return 103 ;;
	permission_denied | unauthenticated) return 104 ;;
	*) return 102 ;;
	esac
}

# lbd_string KEY sets text to the string of the first "KEY" in body, a JSON object. It cannot be part of a string: a
# quote has a backslash there. Control characters become question marks.
lbd_string() {
	rest=${body#*"\"$1\":\""} text=
	[ "$rest" != "$body" ] || return 1
	while :; do
		part=${rest%%[\"\\]*}
		text=$text$part rest=${rest#"$part"}
		case $rest in
		'"'*) break ;;
		\\u????*) rest=${rest#??????} text="$text?" ;;
		\\[nrtbf]*) rest=${rest#??} text="$text " ;;
		\\?*)
			rest=${rest#?} part=${rest#?}
			text=$text${rest%"$part"} rest=$part
			;;
		*) return 1 ;;
		esac
	done
	case $text in *[[:cntrl:]]*) text=$(printf %s "$text" | tr '[:cntrl:]' '?') ;; esac
}
