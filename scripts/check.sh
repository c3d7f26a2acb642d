#!/usr/bin/env bash
# Runs every check, in the order of what fails fastest; `make test` and `.ci/run` call it. Each step has a header with its name, the
# first that fails ends the run with a non-zero status, and the times of all are listed at the end.
#
# Usage: scripts/check.sh [STEP...]      without names: all of them, in this order
set -euo pipefail
cd "$(dirname "$0")/.."

all=(deps fmt clippy docs test fuzz loom miri release instructions clients)
jobs=${NUTHATCH_JOBS:-$(nproc)}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
target=${CARGO_TARGET_DIR:-$PWD/target}

step_deps() {
    scripts/install-rust-parts.sh
    scripts/install-test-deps.sh
}

step_fmt() {
    cargo fmt --all --check
    rustfmt --check --edition 2024 fuzz/*.rs fuzz/fuzz_targets/*.rs
}

step_clippy() { cargo clippy --workspace --all-targets --locked --jobs "$jobs" -- --deny warnings; }

step_docs() { RUSTDOCFLAGS='--deny warnings' cargo doc --workspace --no-deps --document-private-items --locked --jobs "$jobs"; }

# Unit, property, transcript and brief fuzz tests, and the examples in documentation. The program that tests start is the one
# that was built with them; built alone, with what only it needs of each crate, much would be compiled once more.
step_test() {
    cargo test --workspace --locked --jobs "$jobs" --no-run
    NUTHATCH_BIN=${NUTHATCH_BIN:-$target/debug/nuthatch} cargo test --workspace --locked --jobs "$jobs"
}

# The fuzz targets still compile; their bodies ran briefly among the tests, and run for as long as one likes by `make fuzz`.
step_fuzz() { CARGO_TARGET_DIR=$target cargo check --manifest-path fuzz/Cargo.toml --jobs "$jobs"; }

# Every interleaving of the store's index and segment life cycle.
step_loom() { provided_by_store ci/loom.sh; }

# The store's unsafe modules under an interpreter that sees undefined behaviour.
step_miri() {
    if ! cargo +nightly miri --version >/dev/null 2>&1; then
        printf '%s\n' 'skipped: this machine has no nightly toolchain with Miri, and rustup could not fetch one'
        return
    fi
    provided_by_store ci/miri.sh
}

provided_by_store() {
    if [ ! -e "crates/store/$1" ]; then
        printf '%s\n' "crates/store/$1 is missing" >&2
        return 1
    fi
    bash "crates/store/$1"
}

# Together, so that the second takes the first's crates as they are.
step_release() { cargo build --release --package nuthatch --package nuthatch-instructions --locked --jobs "$jobs"; }

# No hot path takes 5 % more instructions than bench/instructions.txt says; with UPDATE_INSTRUCTIONS=1, what they take is recorded.
step_instructions() {
    step_release
    "$target/release/nuthatch-instructions"
}

# Unmodified clients against the program as users get it.
step_clients() {
    NUTHATCH_BIN=${NUTHATCH_BIN:-$target/release/nuthatch} cargo test --workspace --locked --jobs "$jobs" --test clients -- --ignored
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=("${all[@]}")
summary=()
finish() {
    local status=$?
    printf '\n==== summary\n'
    printf '%s\n' "${summary[@]}"
    [ "$status" = 0 ] || printf '%s\n' "FAILED: ${current:-}"
    exit "$status"
}
trap finish EXIT

for current in "${steps[@]}"; do
    declare -F "step_$current" >/dev/null || { printf '%s\n' "there is no step '$current'; there are: ${all[*]}" >&2; exit 2; }
    printf '\n==== %s\n' "$current"
    began=$SECONDS
    "step_$current" </dev/null
    summary+=("$(printf '%-12s %4d s' "$current" $((SECONDS - began)))")
done
