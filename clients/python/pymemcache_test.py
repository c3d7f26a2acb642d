"""pymemcache: plain, pooled and hashed clients over the text protocol."""

from check import *
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError
from pymemcache.serde import pickle_serde

WHERE = SERVER if IS_UNIX else (HOST, PORT)


def storage(client, name):
    client.flush_all(noreply=False)
    same(client.set("a", EVERY_BYTE, noreply=False), True, f"{name} set")
    same(client.get("a"), EVERY_BYTE, f"{name} get")
    same(client.set("empty", b"", noreply=False), True, f"{name} set of nothing")
    same(client.get("empty"), b"", f"{name} get of nothing")
    same(client.get("absent"), None, f"{name} get of an absent key")
    same(client.get("absent", default=7), 7, f"{name} default")
    same(client.add("a", b"no", noreply=False), False, f"{name} add on present")
    same(client.add("b", b"1", noreply=False), True, f"{name} add on absent")
    same(client.replace("c", b"no", noreply=False), False, f"{name} replace on absent")
    same(client.replace("b", b"mid", noreply=False), True, f"{name} replace on present")
    same(client.append("b", b">", noreply=False), True, f"{name} append")
    same(client.prepend("b", b"<", noreply=False), True, f"{name} prepend")
    same(client.append("absent", b">", noreply=False), False, f"{name} append on absent")
    same(client.prepend("absent", b"<", noreply=False), False, f"{name} prepend on absent")
    same(client.get("b"), b"<mid>", f"{name} after append and prepend")
    same(client.set(LONGEST_KEY, b"v", noreply=False), True, f"{name} set of a 250-byte key")
    same(client.get(LONGEST_KEY), b"v", f"{name} get of a 250-byte key")
    fails(lambda: client.set("k" * 251, b"v", noreply=False), MemcacheIllegalInputError, f"{name} 251-byte key")
    same(client.delete("b", noreply=False), True, f"{name} delete")
    same(client.delete("b", noreply=False), False, f"{name} second delete")
    same(client.set("quiet", b"q", noreply=True), True, f"{name} noreply set")
    same(client.get("quiet"), b"q", f"{name} get after noreply set")
    same(client.delete("quiet", noreply=True), True, f"{name} noreply delete")
    same(client.get("quiet"), None, f"{name} get after noreply delete")


def numbers(client, name):
    client.set("n", b"10", noreply=False)
    same(client.incr("n", 5), 15, f"{name} incr")
    same(client.decr("n", 6), 9, f"{name} decr")
    same(client.decr("n", 100), 0, f"{name} decr below nothing")
    same(client.incr("absent", 1), None, f"{name} incr on absent")
    client.set("n", b"18446744073709551615", noreply=False)
    same(client.incr("n", 2), 1, f"{name} incr past 64 bits")
    client.set("word", b"nuthatch", noreply=False)
    fails(lambda: client.incr("word", 1), MemcacheClientError, f"{name} incr of a word")


def uniques(client, name):
    client.set("c", b"1", noreply=False)
    value, unique = client.gets("c")
    same(value, b"1", f"{name} gets")
    same(client.cas("c", b"2", unique, noreply=False), True, f"{name} cas that matches")
    same(client.cas("c", b"3", unique, noreply=False), False, f"{name} cas that is out of date")
    same(client.get("c"), b"2", f"{name} after both cas")
    same(client.cas("absent", b"4", unique, noreply=False), None, f"{name} cas on absent")
    again = client.gets_many(["c", "absent"])
    same(list(again), ["c"], f"{name} gets_many")
    true(again["c"][1] != unique, f"{name} a write changes the unique")


def many(client, name):
    pairs = {f"many:{n}": b"value %d" % n for n in range(1000)}
    same(client.set_many(pairs, noreply=False), [], f"{name} set_many")
    same(client.get_many([*pairs, *(f"absent:{n}" for n in range(1000))]), pairs, f"{name} get_many of 2000 keys, half absent")
    same(client.delete_many(pairs, noreply=False), True, f"{name} delete_many")
    same(client.get_many(pairs), {}, f"{name} get_many of deleted keys")


def large(client, name):
    same(client.set("large", LARGE, noreply=False), True, f"{name} set of 900 KiB")
    same(client.get("large"), LARGE, f"{name} get of 900 KiB")
    fails(lambda: client.set("large", TOO_LARGE, noreply=False), MemcacheServerError, f"{name} set of 2 MiB")
    same(client.get("large"), None, f"{name} a refused set leaves no stale value")
    same(client.set("large", b"small", noreply=False), True, f"{name} the connection works after a refused set")


def expiry(client, name):
    client.set_many({"brief": b"1", "touched": b"2", "got": b"3", "kept": b"4"}, expire=2, noreply=False)
    client.set("forever", b"5", noreply=False)
    same(client.touch("touched", 100, noreply=False), True, f"{name} touch")
    same(client.touch("absent", 100, noreply=False), False, f"{name} touch on absent")
    same(client.raw_command(b"gat 100 got absent", b"END\r\n"), b"VALUE got 0 1\r\n3\r\n", f"{name} gat")
    line, value = client.raw_command(b"gats 100 kept", b"\r\nEND\r\n").split(b"\r\n")
    same((line.split()[:4], value), ([b"VALUE", b"kept", b"0", b"1"], b"4"), f"{name} gats")
    unique = line.split()[4]
    same(client.cas("kept", b"6", unique, expire=100, noreply=False), True, f"{name} cas with gats' unique")
    client.set("negative", b"7", expire=-1, noreply=False)
    same(client.get("negative"), None, f"{name} negative expiry is the past")
    pass_seconds(2)
    same(client.get_many(["brief", "touched", "got", "kept", "forever"]),
         {"touched": b"2", "got": b"3", "kept": b"6", "forever": b"5"}, f"{name} after the expiry")


def about_the_server(client):
    true(client.version(), "version")
    stats = client.stats()
    same(stats[b"pointer_size"], 64, "stats pointer_size")
    true(stats[b"curr_items"] > 0, "stats curr_items")
    true(stats[b"cmd_get"] > 0, "stats cmd_get")
    same(client.stats("settings")[b"item_size_max"], 1048576, "stats settings item_size_max")
    true(client.stats("items"), "stats items")
    true(client.stats("slabs"), "stats slabs")
    same(client.cache_memlimit(64), True, "cache_memlimit")
    same(client.raw_command(b"mn"), b"MN", "meta no-op")
    same(client.raw_command(b"ms raw 2 T0 F5\r\nhi"), b"HD", "meta set")
    same(client.raw_command(b"mg raw s v f", b"hi\r\n"), b"VA 2 s2 f5\r\n", "meta get")
    same(client.flush_all(delay=0, noreply=False), True, "flush_all")
    same(client.get("forever"), None, "get after flush_all")


def typed():
    client = Client(WHERE, serde=pickle_serde, key_prefix=b"site:")
    value = {"name": "nuthatch", "numbers": [1, 2.5], "text": "Kleiber — поползень"}
    for thing in (value, 42, "text", True, b"\0bytes"):
        same(client.set("typed", thing, noreply=False), True, "set of a typed value")
        same(client.get("typed"), thing, "flags tell the type")
    same(client.get_many(["typed", "absent"]), {"typed": b"\0bytes"}, "get_many with a prefix")
    same(Client(WHERE).get("site:typed"), b"\0bytes", "the prefix is part of the key")
    unicode = Client(WHERE, allow_unicode_keys=True)
    same(unicode.set("ключ", b"v", noreply=False), True, "set of a key outside ASCII")
    same(unicode.get("ключ"), b"v", "get of a key outside ASCII")


for name, client in (("Client", Client(WHERE, timeout=20)), ("PooledClient", PooledClient(WHERE, max_pool_size=4, timeout=20))):
    storage(client, name)
    numbers(client, name)
    uniques(client, name) if name == "Client" else None
    many(client, name)
    large(client, name)
    if name == "Client":
        expiry(client, name)
        about_the_server(client)
typed()

hashed = HashClient([WHERE] if IS_UNIX else [tuple(s.rsplit(":", 1)) for s in SERVERS], timeout=20, use_pooling=True)
pairs = {f"hashed:{n}": b"%d" % n for n in range(1000)}
same(hashed.set_many(pairs, noreply=False), [], "HashClient set_many")
same(hashed.get_many(pairs), pairs, "HashClient get_many")
if not IS_UNIX:
    held = [int(Client(s).stats()[b"curr_items"]) for s in SERVERS]
    same(sum(held), 1000, "HashClient holds each key once")
    true(min(held) > 0, "HashClient uses every server")
hashed.flush_all(noreply=False)
same(hashed.get_many(pairs), {}, "HashClient flush_all")
done()
