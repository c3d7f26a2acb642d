#!/usr/bin/env bash
# Runs the published HTTP cache test suite (https://github.com/http-tests/cache-tests; npm: http-cache-tests) against the built
# program: once as it comes, once with the knobs by which an operator gives up what Nuthatch refuses unless told. Prints what
# passed beside what the suite's authors found of other proxies. Takes about two minutes; needs Node.js and the npm registry.
#
# Usage: scripts/conformance.sh [-v]     -v also names each test that did not pass, and why
#
# SUITE=DIR runs another copy of the suite, such as a clone of its repository after `npm install`.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.4.5
knobs='{ set_cookie = "keep", refuse_statuses = ["none"] }'
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/conformance
suite=${SUITE:-$work/node_modules/http-cache-tests}

fail() { printf 'conformance: %s\n' "$*" >&2; exit 1; }

for program in node npm cargo; do
    command -v "$program" >/dev/null || fail "$program is missing (scripts/install-test-deps.sh installs it)"
done
mkdir -p "$work"
if [ -z "${SUITE:-}" ] && ! grep -qs "\"version\": \"$version\"" "$suite/package.json"; then
    # Its dependency on npm itself is not needed to run it; what it is run with is.
    npm install --prefix "$work" --silent --no-package-lock --no-audit --no-fund --no-update-notifier "http-cache-tests@$version"
fi
[ -e "$suite/tests/index.mjs" ] || fail "$suite has no tests/index.mjs, expected a copy of the suite"
cargo build --package nuthatch --locked

free_port() { node -e 's = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })'; }

wait_for() {
    local port=$1 log=$2
    for _ in $(seq 100); do
        if (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
        sleep 0.1
    done
    fail "nobody listens on port $port: $(cat "$log")"
}

# One run: its name, and the `pages` table of the listener. In a shell of its own, which ends what it has started.
run() (
    name=$1 pages=$2 children=()
    trap 'kill "${children[@]}" 2>/dev/null || true' EXIT
    origin=$(free_port)
    npm_config_protocol=http npm_config_port=$origin npm_config_pidfile=$work/$name.pid \
        node --no-warnings "$suite/server/server.mjs" >"$work/$name.origin.log" 2>&1 &
    children+=($!)
    wait_for "$origin" "$work/$name.origin.log"
    port=$(free_port)
    cat >"$work/$name.toml" <<TOML
[pool.pages]
memory = "64MiB"
[[listen]]
http = "127.0.0.1:$port"
pool = "pages"
origin = "http://127.0.0.1:$origin"
pages = $pages
TOML
    "$target/debug/nuthatch" serve --config "$work/$name.toml" >"$work/$name.log" 2>&1 &
    children+=($!)
    wait_for "$port" "$work/$name.log"
    node --no-warnings scripts/conformance/run.mjs "$suite" "http://127.0.0.1:$port" >"$work/$name.json"
)

# Together: most of the time is waiting.
run defaults '{}' & first=$!
run knobs "$knobs" & second=$!
wait "$first" && wait "$second" || fail 'the suite did not run to its end'
node --no-warnings scripts/conformance/table.mjs "$suite" "$@" "Nuthatch, as it comes=$work/defaults.json" "Nuthatch, with $knobs=$work/knobs.json"
