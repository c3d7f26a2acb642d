"""Answers where pylibmc or pymemcache place keys; the first argument says which. See ../php/placement.php for the rest.

pylibmc's `hash` is libmemcached's memcached_generate_hash, the index of a key's server.
"""

import sys

kind, path = sys.argv[1:]
with open(path, "rb") as file:
    keys = file.read().splitlines()


def pylibmc_places(distribution, hash, options, servers):
    import pylibmc

    def spec(host, port, weight):
        return host if host.startswith("/") and port == "0" else (f"{host}:{port}:{weight}" if ":" not in host else f"[{host}]:{port}:{weight}")

    client = pylibmc.Client([spec(*server) for server in servers])
    behaviors = {
        "modula": {"distribution": "modula"},
        "ketama": {"distribution": "consistent ketama"},
        "ketama_spy": {"distribution": "consistent ketama spy"},
        "ketama_weighted": {"ketama_weighted": True},
    }[distribution]
    if hash:
        behaviors = {"hash": {"one_at_a_time": "default"}.get(hash, hash), **behaviors}
    for word in filter(None, options.split(",")):
        behaviors = {{"sort_hosts": "_sort_hosts"}[word]: True, **behaviors}
    for name, value in behaviors.items():
        client.behaviors = {name: value}
    return [client.hash(key) for key in keys]


def pymemcache_places(distribution, hash, options, servers):
    from pymemcache.client.hash import HashClient

    labels = [host if host.startswith("/") else f"{host}:{port}" for host, port, _ in servers]
    client = HashClient([host if host.startswith("/") else (host, int(port)) for host, port, _ in servers])
    for word in filter(None, options.split(",")):
        name, _, value = word.partition("=")
        assert name == "dead", word
        # As its remove_server does with a server that failed.
        client.hasher.remove_node(labels[int(value)])
    index = {label: number for number, label in enumerate(labels)}
    return [index[client.hasher.get_node(key.decode())] for key in keys]


places = {"pylibmc": pylibmc_places, "pymemcache": pymemcache_places}[kind]
answers = 0
for line in sys.stdin:
    name, distribution, hash, options, servers = line.rstrip("\n").split("\t")
    found = places(distribution, hash, options, [server.split(" ") for server in servers.split(";")])
    print(name, *found)
    answers += 1
print("ok", answers)
