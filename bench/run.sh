#!/usr/bin/env bash
# Installs what the comparison needs, builds both programs and runs it. `make bench` calls it.
#
#   TRACES=DIR   traces to replay (*.bin, *.csv, also .zst); without it the misses are left out
#   arguments    flags of `nuthatch bench compare`, such as --rounds 3 or --only cpu,traces
#
# It takes about an hour and wants the machine to itself.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-test-deps.sh bench
cargo build --release --locked --package nuthatch --package nuthatch-bare
built=${CARGO_TARGET_DIR:-target}/release

flags=(--bare "$built/nuthatch-bare" --out bench/results)
# The release whose behaviour Nuthatch offers, where its source could be had; else the memcached that is installed.
read -r version _ <clients/memcached/release.txt
memcached=${NUTHATCH_CLIENTS_DIR:-target/clients}/memcached-$version/memcached
[ ! -x "$memcached" ] || flags+=(--memcached "$memcached")
[ -z "${TRACES:-}" ] || flags+=(--traces "$TRACES")
exec "$built/nuthatch" bench compare "${flags[@]}" "$@"
