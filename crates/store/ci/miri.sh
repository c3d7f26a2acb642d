#!/usr/bin/env bash
# The store's unsafe modules under Miri: every read and write in bounds, initialised, and free of data races.
# Needs a nightly toolchain with the miri component; says so and stops with status 3 where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "miri: no nightly toolchain with the miri component; 'rustup component add miri rust-src --toolchain nightly' adds it" >&2
    exit 3
fi
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-../../target}/miri"
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks ${MIRIFLAGS:-}"
exec cargo +nightly miri test --test miri --lib "$@"
