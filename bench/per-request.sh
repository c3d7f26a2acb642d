#!/usr/bin/env bash
# What one request costs the whole server: instructions by part, counted by callgrind, and system calls, counted by strace. Each load is
# run with two numbers of requests and the difference is taken, so that start and end do not count. Prints a table in Markdown, as in
# docs/performance.md. It takes about two minutes and wants Debian's valgrind and strace.
#
# Usage: bench/per-request.sh
set -euo pipefail
cd "$(dirname "$0")/.."

few=4800
many=24000
loads=(
    "get, 1 connection|-m 0:1 -c 1"
    "get, 50 connections|-m 0:1 -c 50"
    "get, 16 pipelined|-m 0:1 -c 1 -d 16"
    "get of 50 keys|-m 0:1 -c 1 -w 50"
    "set, 1 connection|-m 1:0 -c 1"
)

for program in valgrind strace; do
    command -v "$program" >/dev/null || { printf '%s\n' "per-request: expected $program, which is Debian's package of that name" >&2; exit 1; }
done
cargo build --release --locked --package nuthatch
nuthatch=${CARGO_TARGET_DIR:-target}/release/nuthatch
dir=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT

# serve TOOL... -- FLAGS OF THE LOAD: runs the server under a tool, loads it and ends it.
serve() {
    local tool=() try
    while [ "$1" != -- ]; do tool+=("$1"); shift; done
    shift
    rm -f "$dir/socket"
    "${tool[@]}" "$nuthatch" serve -t 1 -s "$dir/socket" -P "$dir/pid" >/dev/null 2>&1 &
    server=$!
    for try in $(seq 100); do
        [ ! -S "$dir/socket" ] || break
        [ "$try" != 100 ] || { printf '%s\n' "per-request: expected the server to listen within 10 s" >&2; exit 1; }
        sleep 0.1
    done
    "$nuthatch" bench -s "$dir/socket" -k 1000 -q --timeout 60s "$@" >/dev/null
    # strace passes no signal on, so the server itself is told.
    kill "$(cat "$dir/pid")"
    wait "$server" || true
    server=
}

# Cost by part of one callgrind file: the codecs, execution and the store are Nuthatch's own.
parts() {
    awk '
        /^fn=/ { name = substr($0, 4) }
        /^calls=/ { is_call = 1; next }
        /^[0-9]/ {
            if (is_call) { is_call = 0; next }
            if (name ~ /nuthatch_server::(conn::(Connection|output|stream)|worker)/) part = "connection"
            else if (name ~ /nuthatch|rapidhash/) part = "request"
            else if (name ~ /tokio|mio::|__rust_begin_short_backtrace/) part = "runtime"
            else part = "library"
            cost[part] += $2
        }
        END { printf "%d %d %d %d\n", cost["request"], cost["connection"], cost["runtime"], cost["library"] }
    ' "$1"
}

# Calls of one strace summary: epoll_wait, recvfrom, sendto, and the others.
calls() {
    awk '
        $NF ~ /^[a-z_0-9]+$/ && $4 ~ /^[0-9]+$/ && $NF != "total" {
            if ($NF == "epoll_wait" || $NF == "recvfrom" || $NF == "sendto") count[$NF] += $4
            else count["others"] += $4
        }
        END { printf "%d %d %d %d\n", count["epoll_wait"], count["recvfrom"], count["sendto"], count["others"] }
    ' "$1"
}

printf '%s\n' '| load | instructions | request | connection | runtime | C library, std | epoll_wait | recv | send | other calls |' \
    '|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|'
for load in "${loads[@]}"; do
    read -ra flags <<<"${load#*|}"
    for count in "$few" "$many"; do
        serve valgrind --quiet --tool=callgrind --compress-strings=no --compress-pos=no "--callgrind-out-file=$dir/callgrind.$count" -- \
            -n "$count" "${flags[@]}"
        serve strace -f -c -o "$dir/strace.$count" -- -n "$count" "${flags[@]}"
    done
    {
        parts "$dir/callgrind.$few"
        parts "$dir/callgrind.$many"
        calls "$dir/strace.$few"
        calls "$dir/strace.$many"
    } | awk -v name="${load%%|*}" -v requests=$((many - few)) '
        { for (i = 1; i <= 4; i++) seen[NR, i] = $i }
        END {
            for (i = 1; i <= 4; i++) { part[i] = (seen[2, i] - seen[1, i]) / requests; all += part[i] }
            printf "| %s | %.0f", name, all
            for (i = 1; i <= 4; i++) printf " | %.0f", part[i]
            for (i = 1; i <= 4; i++) printf " | %.2f", (seen[4, i] - seen[3, i]) / requests
            print " |"
        }'
done
