#!/usr/bin/env bash
# memcapable, libmemcached's conformance suite, for both protocols; Debian calls it memccapable. It speaks TCP only.
set -euo pipefail

passed=0
for protocol in -a -b; do
    status=0
    out=$(memccapable -h "${SERVER%:*}" -p "${SERVER##*:}" -t 20 $protocol 2>&1) || status=$?
    if [ "$status" != 0 ] || ! grep -q 'All tests passed' <<<"$out"; then
        printf '%s\n' "memcapable $protocol ended with $status:" "$(grep -v '\[pass\]' <<<"$out")"
        exit 1
    fi
    passed=$((passed + $(grep -c '\[pass\]' <<<"$out")))
done
printf '%s\n' "ok $passed"
