# What the `test` of an example needs. Sourced by it, run from the example's own folder; not a program of its own.
#
#   agentwire            the binary: AGENTWIRE, or the one of the debug build
#   build NAME           builds an example's program and says where it is
#   start COMMAND…       starts a server and waits for the address it prints; then `$url` has it
#   run PATH TEXT [RUN]  asks the agent there over AG-UI in thread `t`, prints the stream
#   expect WHAT TEXT     fails unless stdin holds TEXT
#
# Whatever is started ends with the test, by its process id.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$root/$target ;; esac
work=$(mktemp -d)
started=()
cd "$here"
# Whatever proxy this machine needs, it does not lead to the servers of a test.
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
    # The end-to-end tests have built everything at once.
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
    # Whole lines only: the last one may still be on its way.
    until url=$(head -n "$(wc -l <"$log")" "$log" | grep -om1 'http://127\.0\.0\.1:[0-9]*'); do
        kill -0 "$pid" 2>/dev/null || fail "the server ended: $(cat "$log")"
        tries=$((tries + 1))
        [ "$tries" -lt 1800 ] || fail "the server says no address: $(cat "$log")"
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
