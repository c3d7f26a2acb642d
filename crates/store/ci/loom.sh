#!/usr/bin/env bash
# Every order in which threads can meet: the index, the epochs and a segment's life, under loom.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-../../target}/loom"
exec cargo test --release --lib loom "$@"
