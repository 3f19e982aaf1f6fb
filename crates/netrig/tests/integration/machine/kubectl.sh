#!/bin/sh
# kubectl, as far as netrig calls it: a cluster whose pods are network namespaces, and whose state is files.
d=${0%/bin/*}
printf '%s\n' "$*" >>"$d/calls"
while case "$1" in --context=* | --namespace=* | --request-timeout=*) true ;; *) false ;; esac do shift; done

fail() {
	echo "$1" >&2
	exit 1
}

# Objects of a kind that a selector chooses.
selected() {
	for file in "$d/$1"/*; do
		case "$2" in
		*netrig/run=*) grep -q "\"netrig/run\":\"${2##*netrig/run=}\"" "$file" 2>/dev/null && echo "$file" ;;
		*) test -f "$file" && echo "$file" ;;
		esac
	done
}

case "$1 $2" in
"config view")
	test ! -f "$d/no-context" || fail 'error: context "nowhere" does not exist'
	echo '{"current-context":"here","contexts":[{"name":"here","context":{"namespace":"lab"}}]}'
	;;
"get --raw=/version") echo '{"gitVersion":"v1.34.4"}' ;;
"auth can-i")
	shift 2
	grep -qx -- "$*" "$d/forbidden" 2>/dev/null && echo no && exit 1
	echo yes
	;;
"create "*)
	file=$d/created/$(ls "$d/created" | wc -l).json
	cat >"$file"
	if test -f "$d/no-host-network" && grep -q '"hostNetwork":true' "$file"; then
		fail 'Error from server (Forbidden): pods are forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
	fi
	runner=$(grep -o '"netrig/runner":"[^"]*"' "$file" | head -n 1)
	run=$(grep -o '"netrig/run":"[^"]*"' "$file" | head -n 1)
	of='"annotations":{%s},"labels":{%s,"app.kubernetes.io/managed-by":"netrig"}'
	for name in $(grep -o '"name":"netrig-[0-9a-f]*-[a-z-]*"' "$file" | cut -d '"' -f 4 | sort -u); do
		role=${name#netrig-*-}
		state='"ready":true'
		test ! -f "$d/broken" || state=$(cat "$d/broken")
		phase=Running
		test ! -f "$d/phase" || phase=$(cat "$d/phase")
		# shellcheck disable=SC2059 # the format has the runner's and the run's places
		printf '{"metadata":{"name":"%s",'"$of"'},"spec":{"nodeName":"%s"},"status":{"phase":"%s","podIP":"%s","containerStatuses":[{%s}]}}' \
			"$name" "$runner" "$run" "$(cat "$d/node/$role")" "$phase" "$(cat "$d/ip/$role")" "$state" >"$d/pods/$name"
	done
	if grep -q '"kind":"Service"' "$file"; then
		# shellcheck disable=SC2059 # as above
		printf '{"metadata":{"name":"service",'"$of"'},"spec":{"clusterIP":"10.96.0.10"}}' "$runner" "$run" >"$d/services/service"
	fi
	;;
"get pods" | "get services")
	separator=
	printf '{"items":['
	for file in $(selected "$2" "$3"); do
		printf '%s' "$separator"
		cat "$file"
		separator=,
	done
	echo ']}'
	;;
"delete pods,services")
	for file in $(selected pods "$3") $(selected services "$3"); do rm -f "$file"; done
	;;
"exec -i")
	test -f "$d/pods/$3" || fail "Error from server (NotFound): pods \"$3\" not found"
	role=${3#netrig-*-}
	shift 6
	echo $$ >"$d/process/$role"
	export HOME="$d" XDG_CACHE_HOME="$d" XDG_RUNTIME_DIR="$d"
	# As kubelet does: no capability, none to be had, and no user namespaces.
	# shellcheck disable=SC2016 # the inner shell's
	exec nsenter "--net=$(cat "$d/ns/$role")" unshare --user --map-root-user sh -c \
		'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --no-new-privs --bounding-set=-all "$@"' sh "$@"
	;;
*) fail "error: unknown command $*" ;;
esac
