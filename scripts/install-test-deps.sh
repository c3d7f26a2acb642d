#!/usr/bin/env bash
# Installs what `make test` needs and this machine lacks: Debian packages, the memcached that Nuthatch is held against, built from
# its source, and the clients that come from PyPI, npm, Maven Central and the Go module proxy. Run again, it finds everything in
# place and does nothing.
#
# Works as root, or as a user whose sudo asks no password. No service that a package brings is left running, or started at the next
# boot, unless it was installed before.
#
# Usage: scripts/install-test-deps.sh [all|packages|clients|bench]
#
# `bench` is what `make bench` needs: servers to compare with, and no clients but libmemcached's.
# The memcached of both is in target/clients/memcached-VERSION.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
what=${1:-all}
# Where the clients of the other registries are put: the tests look for them in the same place.
clients=${NUTHATCH_CLIENTS_DIR:-$root/target/clients}

say() { printf '%s\n' "install-test-deps: $*"; }
fail() { say "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n "$@"
    else
        fail "installing packages needs root or sudo; neither is here"
    fi
}

# ---- Debian packages --------------------------------------------------------------------------------------------------------------

# Needed whatever else is on the machine: only Debian's build of each is tested with.
packages=(
    ca-certificates curl
    gcc g++ libc6-dev                   # the linker that cargo calls, and the compiler of libFuzzer
    valgrind                            # counts instructions
    make libevent-dev xz-utils          # what memcached's source is unpacked and built with
    memcached                           # the reference server in its stead, where its source is not to be had
    libmemcached-tools                  # memcapable, memccat, memccp, memcstat...
    php-cli php-memcached php-memcache
    python3 python3-venv python3-pylibmc python3-requests
    perl libcache-memcached-fast-perl libcache-memcached-perl
    libio-socket-ssl-perl               # memcached's own tests of TLS
    ruby ruby-dalli
    nginx-light
    apache2-bin                         # httpd and its modules without the service
    nutcracker                          # twemproxy
    wrk chromium                        # readers of pages
    etcd-server                         # keeps lists of servers
    mariadb-server mariadb-client       # tables behind a pool; each test starts its own
    galera-4 rsync                      # a cluster of MariaDBs, and how a node gets what it missed
    postgresql-15
    netcat-openbsd                      # the examples' commands ask with it
)

# A program that may have come from elsewhere, and the packages that bring it when it is missing.
need() {
    local program=$1
    shift
    command -v "$program" >/dev/null || packages+=("$@")
}
need go golang-go
need javac default-jdk-headless
need mvn maven default-jdk-headless
need node nodejs
need npm npm

installed() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

policy=/usr/sbin/policy-rc.d
policy_saved=

# While packages are installed, a policy of exit status 101 tells their scripts to start nothing (Debian's invoke-rc.d policy).
forbid_starting() {
    local answer=0
    if [ -x "$policy" ]; then
        "$policy" memcached start >/dev/null 2>&1 || answer=$?
        [ "$answer" != 101 ] || return 0    # a policy is in force already, and it forbids
    fi
    trap allow_starting EXIT
    if [ -e "$policy" ]; then
        policy_saved=$policy.before-nuthatch
        as_root mv "$policy" "$policy_saved"
    else
        policy_saved=none
    fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

allow_starting() {
    [ -n "$policy_saved" ] || return 0
    as_root rm -f "$policy"
    [ "$policy_saved" = none ] || as_root mv "$policy_saved" "$policy"
    policy_saved=
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

install_packages() {
    command -v apt-get >/dev/null || fail "this needs Debian's apt-get; elsewhere install by hand: ${packages[*]}"
    local package missing=() ports=() services=() port service
    for package in "${packages[@]}"; do
        installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} = 0 ]; then
        say "all Debian packages are in place"
        return
    fi
    for port in 80 2379 3128 3306 5432 6081 6379 11211 22121; do
        listening "$port" || ports+=("$port")
    done
    for service in memcached nginx apache2 nutcracker etcd redis-server mariadb postgresql varnish varnishncsa squid; do
        [ -e "/lib/systemd/system/$service.service" ] || [ -e "/etc/init.d/$service" ] || services+=("$service")
    done

    say "installing ${missing[*]}"
    forbid_starting
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 install "${missing[@]}" </dev/null >/dev/null
    allow_starting

    # Not now and not at the next boot.
    for service in "${services[@]}"; do
        if [ -e "/lib/systemd/system/$service.service" ] && command -v systemctl >/dev/null; then
            as_root systemctl --quiet disable "$service.service" >/dev/null 2>&1 || true
        elif [ -e "/etc/init.d/$service" ] && command -v update-rc.d >/dev/null; then
            as_root update-rc.d "$service" disable >/dev/null 2>&1 || true
        fi
    done
    for port in "${ports[@]}"; do
        ! listening "$port" || fail "port $port was free before the packages were installed and is in use now"
    done
}

# ---- clients from the other registries --------------------------------------------------------------------------------------------

# Does a step when the files that decide its outcome changed since it was last done.
once() {
    local name=$1 stamp=$clients/$1.done sum
    shift
    local files=()
    while [ "$1" != -- ]; do files+=("$1"); shift; done
    shift
    sum=$(cat "${files[@]}" | sha256sum)
    if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then
        say "$name is in place"
        return
    fi
    say "installing $name"
    rm -f "$stamp"
    "$@"
    # A failure comes this far only where the caller has an answer to it.
    [ $? = 0 ] || return 1
    printf '%s\n' "$sum" >"$stamp"
}

python_clients() {
    rm -rf "$clients/python"
    # Debian's Python, since pylibmc is Debian's.
    /usr/bin/python3 -m venv --system-site-packages "$clients/python"
    "$clients/python/bin/python" -m pip --quiet --disable-pip-version-check install --requirement "$root/clients/python/requirements.txt"
}

node_clients() {
    rm -rf "$clients/node"
    mkdir -p "$clients/node"
    cp "$root/clients/node/package.json" "$clients/node/"
    (cd "$clients/node" && npm install --silent --no-package-lock --no-audit --no-fund --no-update-notifier)
}

java_clients() {
    rm -rf "$clients/java"
    mkdir -p "$clients/java"
    # Built in place of the sources so that nothing is written into the work tree.
    cp -r "$root/clients/java/." "$clients/java/"
    (cd "$clients/java" && mvn --quiet --batch-mode -Dstyle.color=never package)
}

go_clients() {
    mkdir -p "$clients/go"
    (cd "$root/clients/go" && GOFLAGS= go build -buildvcs=false -o "$clients/go/gomemcache-test" .)
}

# The release whose behaviour Nuthatch offers: its version and the SHA-256 of its source.
read -r memcached_version memcached_sha256 <"$root/clients/memcached/release.txt"

# Where this machine's Debian packages come from.
debian_mirror() {
    local mirror
    mirror=$({
        [ ! -e /etc/apt/sources.list ] || cat /etc/apt/sources.list
        find /etc/apt/sources.list.d -name '*.list' -exec cat {} +
        find /etc/apt/sources.list.d -name '*.sources' -exec sed -n 's/^URIs:[[:space:]]*/deb /p' {} +
    } | sed -n 's/^deb \(\[[^]]*\] *\)\{0,1\}\([^ ]*\/debian\)\/\{0,1\}\( .*\)\{0,1\}$/\2/p' | head -n 1)
    printf '%s\n' "${mirror:-http://deb.debian.org/debian}"
}

# That release, tests and all, out of Debian's pool, which has it as long as sid does. Each step asks for the one before it by
# itself, because `set -e` is not in force where a failure is expected.
memcached_release() {
    local place=$clients/memcached-$memcached_version
    local file=memcached_$memcached_version.orig.tar.xz
    rm -rf "$place" &&
        mkdir -p "$place" &&
        /usr/lib/apt/apt-helper -qq -o APT::Sandbox::User="$(id -un)" download-file "$(debian_mirror)/pool/main/m/memcached/$file" "$place/$file" \
            "SHA256:$memcached_sha256" >/dev/null 2>&1 &&
        tar -xf "$place/$file" -C "$place" --strip-components=1 &&
        (cd "$place" && ./configure --quiet && make -j "$(nproc)" memcached memcached-debug timedrun) >"$place/build.log" 2>&1
}

install_memcached() {
    mkdir -p "$clients"
    once "memcached $memcached_version" "$root/clients/memcached/release.txt" -- memcached_release
}

# Failing that, the tests of Debian's own memcached, from wherever this machine's packages come from. Nothing is built from it and
# nothing of apt's own state changes.
memcached_source() {
    local place=$clients/memcached-source apt
    rm -rf "$place"
    mkdir -p "$place/apt/parts" "$place/apt/state/lists/partial" "$place/apt/cache/archives/partial"
    {
        [ ! -e /etc/apt/sources.list ] || cat /etc/apt/sources.list
        find /etc/apt/sources.list.d -name '*.list' -exec cat {} +
    } | sed -n 's/^deb /deb-src /p' | grep debian >"$place/apt/parts/source.list" || true
    local file
    for file in /etc/apt/sources.list.d/*.sources; do
        if [ -e "$file" ] && grep -qi '^suites:.*bookworm' "$file"; then
            sed 's/^Types:.*/Types: deb-src/' "$file" >"$place/apt/parts/$(basename "$file")"
        fi
    done
    apt=(-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$place/apt/parts" -o Dir::State="$place/apt/state"
        -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$place/apt/cache" -o APT::Sandbox::User="$(id -un)")
    apt-get "${apt[@]}" update
    (cd "$place" && apt-get "${apt[@]}" source --download-only memcached)
    mkdir "$place/source"
    tar -xf "$place"/memcached_*.orig.tar.* -C "$place/source" --strip-components=1
    rm -rf "$place/apt"
}

# A judge of HTTP/2 servers.
h2spec() {
    mkdir -p "$clients/go"
    GOFLAGS=-mod=readonly go build -C "$root/clients/go/h2spec" -buildvcs=false -o "$clients/go/h2spec" github.com/summerwind/h2spec/cmd/h2spec
}

install_clients() {
    if ! install_memcached; then
        say "memcached $memcached_version cannot be fetched from $(debian_mirror) or built; the tests of Debian's own memcached are run instead"
        rm -rf "$clients/memcached-$memcached_version"
        once "memcached's tests" "$root/clients/memcached/skips-1.6.18.txt" -- memcached_source
    fi
    once "python clients" "$root/clients/python/requirements.txt" -- python_clients
    once "node clients" "$root/clients/node/package.json" -- node_clients
    once "java clients" "$root/clients/java/pom.xml" "$root"/clients/java/src/main/java/*.java -- java_clients
    once "go clients" "$root/clients/go/go.mod" "$root/clients/go/go.sum" "$root"/clients/go/*.go -- go_clients
    once "h2spec" "$root/clients/go/h2spec/go.mod" "$root/clients/go/h2spec/go.sum" -- h2spec
}

case $what in
    all) install_packages; install_clients ;;
    packages) install_packages ;;
    clients) install_clients ;;
    bench)
        packages=(gcc libc6-dev make libevent-dev xz-utils memcached libmemcached-tools redis-server nutcracker util-linux
            mariadb-server mariadb-client postgresql-15
            nginx-light varnish squid wrk)
        install_packages
        if ! install_memcached; then
            say "memcached $memcached_version cannot be fetched from $(debian_mirror) or built; Debian's own memcached is compared with"
            rm -rf "$clients/memcached-$memcached_version"
        fi
        ;;
    *) fail "expected all, packages, clients or bench, not '$what'" ;;
esac
