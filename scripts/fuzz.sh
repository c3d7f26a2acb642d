#!/usr/bin/env bash
# Fuzzes each codec, the pages' formats and rules, a whole connection and whole conversations, for as many seconds each as the first
# argument says (60), or only the targets named after it. What is found is left in fuzz/artifacts/TARGET/, with the command that repeats
# it. Needs a nightly toolchain; installs cargo-fuzz when it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(
    ascii binary udp replies answers connection conversation
    pages-page pages-foreign pages-url pages-coding pages-rules
)

if ! cargo +nightly --version >/dev/null 2>&1; then
    printf '%s\n' "fuzzing needs a nightly toolchain: rustup toolchain install nightly" >&2
    exit 1
fi
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz

cargo +nightly fuzz build
# The fuzzer grows these; they are no part of the repository.
host=$(rustc +nightly --print host-tuple 2>/dev/null || rustc +nightly -vV | sed -n 's/^host: //p')
"${CARGO_TARGET_DIR:-fuzz/target}/$host/release/corpus" fuzz/corpus

for target in "${targets[@]}"; do
    printf '\n==== fuzz %s, %s s\n' "$target" "$seconds"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -max_len=8192 -timeout=30 -rss_limit_mb=4096 -print_final_stats=1
done
