#!/usr/bin/env bash
# memcapable, libmemcached's conformance suite, for both protocols; Debian calls it memccapable. It speaks TCP only.
#
# Two of its tests want a delete with a number behind the key to be refused, which memcached 1.6.45 carries out.
set -euo pipefail

passed=0
for protocol in -a -b; do
    out=$(memccapable -h "${SERVER%:*}" -p "${SERVER##*:}" -t 20 $protocol 2>&1) || true
    failed=$(sed -n 's/ *\[FAIL\].*//p' <<<"$out" | grep -vx -e 'ascii delete' -e 'ascii delete noreply' || true)
    if [ -n "$failed" ] || ! grep -q -e 'All tests passed' -e '2 of 27 tests failed' <<<"$out"; then
        printf '%s\n' "memcapable $protocol:" "$(grep -v '\[pass\]' <<<"$out")"
        exit 1
    fi
    passed=$((passed + $(grep -c '\[pass\]' <<<"$out")))
done
printf '%s\n' "ok $passed"
