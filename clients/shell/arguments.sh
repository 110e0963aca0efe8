# shellcheck shell=sh disable=SC2034,SC2154 # lbd-curl uses the variables, and reads lbd.sh before
# What the arguments of curl say about a request.

# read_arguments ARGUMENT… sets:
#   host         the host of the URL if it names a cluster, else empty
#   cluster      the cluster
#   repeatable   yes if the request can be sent again
#   spent        yes if the body can be read only once, and curl reads it before it connects
#   limited      yes if the exit status 28 may have other reasons than the times that lbd-curl knows
#   deadline     milliseconds of --max-time, or empty
#   to_stdout    yes if the body goes to standard output
#   dump         the file of --dump-header
#   silent       yes if standard error has messages of errors only
#   lbd_path     the path of the URL
#   headers      lines NAME=VALUE, with NAME in lower case
#   cookies      lines NAME=VALUE
#   connects     the value of --connect-timeout, or empty
read_arguments() {
	host='' cluster='' lbd_path=/ headers='' cookies='' spent='''' limited='' deadline='' to_stdout=yes dump='' connects=''
	method='' custom='' gets='' marked='' once='' silenced='' talks='' refused='' urls=0 others=0 value_of=''
	for argument do
		if [ -n "$value_of" ]; then
			read_value "$value_of" "$argument"
			value_of=
			continue
		fi
		case $argument in
		-- | --next) refused="$argument is not supported" ;;
		--*) if takes_value "$argument"; then value_of=$argument; else read_flag "$argument"; fi ;;
		-?*) read_letters "${argument#-}" ;;
		*) read_url "$argument" ;;
		esac
	done
	[ "$urls" != 0 ] || return 0
	[ "$((urls + others))" = 1 ] || refused="send one URL at a time"
	[ -z "$refused" ] || refuse "$refused"
	if [ -n "$gets" ]; then method=GET; fi
	repeatable=
	case ${custom:-${method:-GET}} in GET | HEAD | OPTIONS | PUT | DELETE) repeatable=yes ;; esac
	[ -z "$marked" ] || repeatable=yes
	[ -z "$once" ] || repeatable=
	silent=
	if [ -n "$silenced" ] && [ -z "$talks" ]; then silent=yes; fi
}

# read_letters reads short options that are written together, such as -sSm2.
read_letters() {
	letters=$1
	while [ -n "$letters" ]; do
		rest=${letters#?}
		letter=-${letters%"$rest"} letters=$rest
		case $letter in
		-[AbcCdDeEFhHKmoPQrtTuUwxXyYz])
			if [ -n "$letters" ]; then read_value "$letter" "$letters"; else value_of=$letter; fi
			return
			;;
		-:) refused="-: is not supported" ;;
		*) read_flag "$letter" ;;
		esac
	done
}

read_flag() {
	case $1 in
	-I | --head) : "${method:=HEAD}" ;;
	-G | --get) gets=yes ;;
	-O | --remote-name | --remote-name-all) to_stdout= ;;
	-J | --remote-header-name | --no-clobber) once=yes ;; # a second try would have another file
	-s | --silent) silenced=yes ;;
	-v | --verbose) talks=yes ;;
	esac
}

read_value() {
	case $1 in
	--expand-*)
		# The value has variables, and may be that of any option.
		case $1 in --expand-url) others=$((others + 1)) ;; esac
		once=yes spent=yes limited=yes
		;;
	-K | --config) once=yes spent=yes limited=yes ;; # the file may have a method, a body and a deadline
	-y | --speed-time | -Y | --speed-limit) limited=yes ;;
	-X | --request) custom=$2 ;;
	-m | --max-time)
		deadline=
		if ! milliseconds "$2"; then
			refused="--max-time $2: not a number of seconds"
		elif [ "$ms" != 0 ]; then
			deadline=$ms
		fi
		;;
	--connect-timeout) connects=$2 ;;
	-d | --data | --data-ascii | --data-binary | --json)
		: "${method:=POST}"
		case $2 in @*) read_data "${2#@}" ;; esac
		;;
	--data-urlencode)
		: "${method:=POST}"
		case ${2%%=*} in *@*) read_data "${2#*@}" ;; esac
		;;
	--data-raw | --form-string) : "${method:=POST}" ;;
	-F | --form)
		: "${method:=POST}"
		case $2 in *=[@\<]*)
			file=${2#*=?}
			read_data "${file%%[;,]*}"
			once=yes
			;;
		esac
		;;
	-T | --upload-file)
		: "${method:=PUT}"
		read_body "$2"
		;;
	-H | --header)
		read_header "$2"
		case $2 in [Ii][Dd][Ee][Mm][Pp][Oo][Tt][Ee][Nn][Cc][Yy]-[Kk][Ee][Yy]:*) marked=yes ;; esac
		;;
	-o | --output)
		to_stdout=
		case $2 in
		-) to_stdout=yes ;;
		/dev/null) ;;
		*) if [ -e "$2" ] && [ ! -f "$2" ]; then once=yes; fi ;; # the next try would add to a pipe
		esac
		;;
	-b | --cookie) read_cookies "$2" ;;
	-C | --continue-at) once=yes ;;
	-D | --dump-header) dump=$2 ;;
	--trace | --trace-ascii) talks=yes ;;
	--url) read_url "$2" ;;
	esac
}

# read_header adds a header to headers. One from a file, or without a value, is not seen.
read_header() {
	case $1 in ?*:*) ;; *) return 0 ;; esac
	name=$(printf %s "${1%%:*}" | tr '[:upper:]' '[:lower:]') text=${1#*:}
	text=${text#"${text%%[! ]*}"}
	if [ "$name" = cookie ]; then read_cookies "$text"; fi
	headers="$headers$name=$text$lbd_newline"
}

read_cookies() {
	cookies=$cookies$(printf '%s\n' "$1" | tr ';' '\n' | sed 's/^ *//')$lbd_newline
}

# find_line NAME LINES sets found to the value of the first line NAME=VALUE.
find_line() {
	found=
	case "$lbd_newline$2" in *"$lbd_newline$1="*) ;; *) return 0 ;; esac
	found="$lbd_newline$2"
	found=${found#*"$lbd_newline$1="}
	found=${found%%"$lbd_newline"*}
}

# read_asks sets what lbd has to know of the request: LBD_HASH_KEY, unless it is set, and lbd_headers.
read_asks() {
	lbd_headers=
	if [ -z "${LBD_HASH_KEY:-}" ]; then
		case ${LBD_HASH:-} in
		'') found= ;;
		header:?*) find_line "$(printf %s "${LBD_HASH#*:}" | tr '[:upper:]' '[:lower:]')" "$headers" ;;
		cookie:?*) find_line "${LBD_HASH#*:}" "$cookies" ;;
		*) refuse "LBD_HASH: $LBD_HASH is not header:NAME or cookie:NAME" ;;
		esac
		LBD_HASH_KEY=$found
	fi
	for name in ${LBD_ROUTE_HEADERS:-}; do
		name=$(printf %s "$name" | tr '[:upper:]' '[:lower:]')
		find_line "$name" "$headers"
		[ -z "$found" ] || lbd_headers="$lbd_headers$name=$found$lbd_newline"
	done
}

# read_body notes a body that can be read only once: anything but a file.
read_body() {
	[ -f "$1" ] || once=yes
}

# read_data is read_body for what curl reads before it connects.
read_data() {
	read_body "$1"
	[ -f "$1" ] || spent=yes
}

# read_url finds the cluster in a URL. Without a scheme, it is that of HTTP, as for curl.
read_url() {
	case $1 in
	[Hh][Tt][Tt][Pp]://* | [Hh][Tt][Tt][Pp][Ss]://*) name=${1#*://} ;;
	*://*) name= ;;
	*) name=$1 ;;
	esac
	path=${name%%[?#]*}
	name=${name%%[/?#]*}
	path=${path#"$name"}
	name=${name##*@}
	name=${name%:*}
	found=
	case $name in
	*[!0-9A-Za-z._-]* | '') ;;
	*) find_cluster "$name" ;;
	esac
	if [ -n "$found" ]; then
		urls=$((urls + 1)) host=$name cluster=$found lbd_path=${path:-/}
	else
		others=$((others + 1))
	fi
}

# find_cluster sets found to the cluster of a host: that of LBD_HOSTS, or what is before .lbd.
find_cluster() {
	key=$1
	case $key in *[A-Z]*) key=$(printf %s "$key" | tr '[:upper:]' '[:lower:]') ;; esac
	case $key in ?*.lbd) found=${key%.lbd} ;; esac
	[ -n "${LBD_HOSTS:-}" ] || return 0
	while IFS= read -r line; do
		case $line in "$key="?*) found=${line#*=} ;; esac
	done <<END
$LBD_HOSTS
END
}

# milliseconds sets ms to those of a decimal number of seconds below 1e9.
milliseconds() {
	case $1 in '' | . | *[!0-9.]* | *.*.*) return 1 ;; esac
	ms=${1%%.*} part=000
	case $1 in *.*) part=${1#*.}000 ;; esac
	while :; do case $ms in 0*) ms=${ms#0} ;; *) break ;; esac; done
	case $ms in ??????????*) return 1 ;; esac
	ms=$((${ms:-0} * 1000 + 1${part%"${part#???}"} - 1000))
}

# takes_value reports whether the argument after a long option of curl 8 belongs to it.
takes_value() {
	case $1 in --expand-*) return 0 ;; esac
	valued=" abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config connect-timeout \
connect-to continue-at cookie cookie-jar create-file-mode crlfile curves data data-ascii data-binary data-raw \
data-urlencode delegation dns-interface dns-ipv4-addr dns-ipv6-addr dns-servers doh-url dump-header ech egd-file \
engine etag-compare etag-save expect100-timeout form form-string ftp-account ftp-alternative-to-user ftp-method \
ftp-port ftp-ssl-ccc-mode happy-eyeballs-timeout-ms haproxy-clientip header help hostpubmd5 hostpubsha256 hsts \
interface ip-tos ipfs-gateway json keepalive-cnt keepalive-time key key-type knownhosts krb libcurl limit-rate \
local-port login-options mail-auth mail-from mail-rcpt max-filesize max-redirs max-time netrc-file noproxy \
oauth2-bearer output output-dir parallel-max parallel-max-host pass pinnedpubkey preproxy proto proto-default \
proto-redir proxy proxy-cacert proxy-capath proxy-cert proxy-cert-type proxy-ciphers proxy-crlfile proxy-header \
proxy-key proxy-key-type proxy-pass proxy-pinnedpubkey proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype \
proxy-tlspassword proxy-tlsuser proxy-user proxy1.0 pubkey quote random-file range rate referer request \
request-target resolve retry retry-delay retry-max-time sasl-authzid service-name sigalgs socks4 socks4a socks5 \
socks5-gssapi-service socks5-hostname speed-limit speed-time ssl-sessions stderr telnet-option tftp-blksize time-cond \
tls-max tls13-ciphers tlsauthtype tlspassword tlsuser trace trace-ascii trace-config unix-socket upload-file \
upload-flags url url-query user user-agent variable vlan-priority write-out "
	case $valued in
	*" ${1#--} "*) return 0 ;;
	*) return 1 ;;
	esac
}
