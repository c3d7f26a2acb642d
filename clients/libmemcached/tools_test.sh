#!/usr/bin/env bash
# libmemcached's own tools, over both protocols: copy files in, read them out, and everything between. Debian calls them memc*.
set -euo pipefail

checks=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

same() {
    checks=$((checks + 1))
    if [ "$1" != "$2" ]; then
        printf '%s\n' "$3: expected '${2:0:200}' and got '${1:0:200}'"
        exit 1
    fi
}
succeeds() { local what=$1; shift; local status=0; "$@" >out 2>&1 || status=$?; same "$status" 0 "$what ($(head -c 300 out))"; }
refused() { local what=$1; shift; local status=0; "$@" >out 2>&1 || status=1; same "$status" 1 "$what"; }

head -c 5000 /dev/urandom >page
head -c 900000 /dev/urandom >large
head -c 2000000 /dev/urandom >too-large

for protocol in text binary; do
    flag=
    [ $protocol = text ] || flag=--binary
    s="--servers=$SERVER"

    succeeds "$protocol memcflush" memcflush $s $flag
    succeeds "memcping" memcping $s
    succeeds "$protocol memccp" memccp $s $flag --expire=1000 --flag=42 page large
    succeeds "$protocol memccat" memccat $s $flag --file=got page
    cmp page got || same different equal "$protocol memccat of 5000 bytes"
    succeeds "$protocol memccat" memccat $s $flag --file=got large
    cmp large got || same different equal "$protocol memccat of 900000 bytes"
    refused "$protocol memccp of 2 MB" memccp $s $flag too-large
    succeeds "$protocol memcexist" memcexist $s $flag page
    refused "$protocol memcexist of an absent key" memcexist $s $flag absent
    refused "$protocol memccp --add on present" memccp $s $flag --add page
    succeeds "$protocol memccp --replace on present" memccp $s $flag --replace page
    succeeds "$protocol memctouch" memctouch $s $flag --expire=100 page
    refused "$protocol memctouch of an absent key" memctouch $s $flag --expire=100 absent
    succeeds "$protocol memcrm" memcrm $s $flag page
    refused "$protocol memcrm of an absent key" memcrm $s $flag page
    refused "$protocol memccat of a removed key" memccat $s $flag page
    succeeds "$protocol memcstat" memcstat $s $flag
    grep -q 'pointer_size: 64' out || same "$(cat out)" 'pointer_size: 64' "$protocol memcstat"
    succeeds "$protocol memcstat --server-version" memcstat $s $flag --server-version
    for test in get set mget; do
        succeeds "$protocol memcslap $test" memcslap $s $flag --test=$test --concurrency=8 --execute-number=500 --initial-load=500
    done
    succeeds "$protocol memcslap set without replies" memcslap $s --noreply --test=set --concurrency=4 --execute-number=500
    succeeds "$protocol memcslap set, non-blocking" memcslap $s $flag --non-blocking --tcp-nodelay --test=set --concurrency=4 --execute-number=500
done

succeeds "memcdump" memcdump --servers="$SERVER"
if [ "${SERVER:0:1}" != / ]; then
    # memaslap verifies the values it reads back.
    succeeds "memcaslap" memcaslap --servers="$SERVER" --threads=2 --concurrency=16 --execute_number=20000 --verify=1.0 --division=10
    if ! grep -q 'verify_misses: 0' out || ! grep -q 'verify_failed: 0' out; then
        same "$(grep verify out)" 'verify_misses: 0 verify_failed: 0' "memcaslap reads back what it wrote"
    fi
    succeeds "memcaslap binary" memcaslap --servers="$SERVER" --threads=2 --concurrency=16 --execute_number=20000 --verify=1.0 --binary
fi
printf '%s\n' "ok $checks"
