#!/usr/bin/env bash
# Adds the parts of the Rust toolchain that the checks use: rustfmt and clippy must be there; nightly with Miri is fetched when rustup
# can reach its server, and the Miri step says so when it cannot.
set -euo pipefail

say() { printf '%s\n' "install-rust-parts: $*"; }

command -v cargo >/dev/null || { say "cargo is not here; install Rust with rustup first" >&2; exit 1; }

for part in rustfmt clippy; do
    if ! cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1; then
        say "adding $part"
        rustup component add "$part"
    fi
done

if cargo +nightly miri --version >/dev/null 2>&1; then
    exit 0
fi
if ! command -v rustup >/dev/null; then
    say "rustup is not here, so there is no Miri"
elif timeout 300 rustup toolchain install nightly --profile minimal --component miri --component rust-src --no-self-update >/dev/null 2>&1 ||
    timeout 300 rustup component add miri rust-src --toolchain nightly >/dev/null 2>&1; then
    say "nightly with Miri is in place"
else
    say "rustup could not fetch nightly with Miri"
fi
