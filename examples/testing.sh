# Helpers for the `test` scripts of the examples. Sourced from the example's own folder; not a program.
#
#   agentwire            the binary: AGENTWIRE, or the one of the debug build
#   build NAME           builds an example's program and prints its path
#   start COMMAND…       starts a server and stores the URL that it prints in `$url`
#   run PATH TEXT [RUN]  sends TEXT to the agent over AG-UI in thread `t`, prints the stream
#   expect TITLE TEXT    fails unless stdin contains TEXT
#
# All started processes are stopped at the end of the test, by their process ids.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$root/$target ;; esac
work=$(mktemp -d)
started=()
cd "$here"
# The servers of a test are local, even if this machine needs a proxy.
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

finish() {
    local status=$?
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${started[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
    if [ "$status" -eq 0 ]; then echo "ok"; fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "error: $1" >&2
    exit 1
}

build() {
    # The end-to-end tests have built all programs beforehand.
    if [ -n "${AGENTWIRE_TARGET:-}" ]; then
        echo "$AGENTWIRE_TARGET/debug/$1"
        return
    fi
    (cd "$root" && cargo build -q -p "$1") >&2 || fail "\`$1\` does not build"
    echo "$target/debug/$1"
}

agentwire() {
    if [ -n "${AGENTWIRE:-}" ]; then echo "$AGENTWIRE"; else build agentwire; fi
}

start() {
    local log="$work/server-${#started[@]}.log" tries=0 pid
    : >"$log"
    "$@" >"$log" 2>&1 &
    pid=$!
    started+=("$pid")
    # Whole lines only: the last one may be incomplete.
    until url=$(head -n "$(wc -l <"$log")" "$log" | grep -om1 'http://127\.0\.0\.1:[0-9]*'); do
        kill -0 "$pid" 2>/dev/null || fail "the server ended: $(cat "$log")"
        tries=$((tries + 1))
        [ "$tries" -lt 1800 ] || fail "the server printed no address: $(cat "$log")"
        sleep 0.1
    done
}

run() {
    local run=${3:-run-$RANDOM$RANDOM}
    curl -sSN --max-time 180 "$url$1" -H 'content-type: application/json' "${headers[@]}" -d '{
        "threadId":"t","runId":"'"$run"'","state":{},"tools":[],"context":'"${context:-[]}"',"forwardedProps":{},
        "messages":[{"id":"'"$run"'-user","role":"user","content":"'"$2"'"}]}'
}
headers=()

expect() {
    local found
    found=$(cat)
    case $found in
    *"$2"*) ;;
    *) fail "$1: expected \`$2\`, found: $found" ;;
    esac
}
