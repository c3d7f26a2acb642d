"""pylibmc: libmemcached's text and binary protocols, with the behaviours that sites set."""

import pylibmc
from check import *

WHERE = [SERVER]

for binary in (False, True):
    name = "binary" if binary else "text"
    client = pylibmc.Client(WHERE, binary=binary, behaviors={"tcp_nodelay": True, "cas": True, "no_block": False})
    client.flush_all()

    value = {"name": "nuthatch", "numbers": [1, 2.5], "text": "Kleiber"}
    for thing in (value, EVERY_BYTE, b"", "text", 42, 2**40, True, None):
        same(client.set("typed", thing), True, f"{name} set")
        same(client.get("typed"), thing, f"{name} get: flags tell the type")
    same(client.set("squeezed", LARGE, min_compress_len=1000), True, f"{name} compressed set")
    same(client.get("squeezed"), LARGE, f"{name} compressed get")

    same(client.get("absent"), None, f"{name} get of an absent key")
    same(client.add("typed", 1), False, f"{name} add on present")
    same(client.add("b", b"mid"), True, f"{name} add on absent")
    # libmemcached tells "not stored" of the text protocol from "not found" of the binary one; both refuse.
    if binary:
        fails(lambda: client.replace("absent", 1), pylibmc.NotFound, f"{name} replace on absent")
    else:
        same(client.replace("absent", 1), False, f"{name} replace on absent")
    same(client.append("b", b">"), True, f"{name} append")
    same(client.prepend("b", b"<"), True, f"{name} prepend")
    same(client.get("b"), b"<mid>", f"{name} after append and prepend")
    same(client.append("absent", b">"), False, f"{name} append on absent")
    same(client.replace("b", b"new"), True, f"{name} replace on present")
    same(client.delete("b"), True, f"{name} delete")
    same(client.delete("b"), False, f"{name} second delete")
    same(client.set("k" * 249, b"v"), True, f"{name} set of a long key")
    same(client.get("k" * 249), b"v", f"{name} get of a long key")

    client.set("n", 10)
    same(client.incr("n", 5), 15, f"{name} incr")
    same(client.decr("n", 6), 9, f"{name} decr")
    same(client.decr("n", 100), 0, f"{name} decr below nothing")
    same(client.get("n"), 0, f"{name} a counted number reads back")
    fails(lambda: client.incr("absent"), pylibmc.NotFound, f"{name} incr on absent")
    client.set("m1", 1)
    client.set("m2", 2)
    client.incr_multi(["m1", "m2"], delta=10)
    same(client.get_multi(["m1", "m2"]), {"m1": 11, "m2": 12}, f"{name} incr_multi")

    client.set("c", b"1")
    got, unique = client.gets("c")
    same(got, b"1", f"{name} gets")
    same(client.cas("c", b"2", unique), True, f"{name} cas that matches")
    same(client.cas("c", b"3", unique), False, f"{name} cas that is out of date")
    same(client.get("c"), b"2", f"{name} after both cas")

    pairs = {f"many:{n}": n for n in range(1000)}
    same(client.set_multi(pairs), [], f"{name} set_multi")
    same(client.get_multi([*pairs, "absent"]), pairs, f"{name} get_multi of 1000 keys")
    same(client.get_multi(["1", "2"], key_prefix="many:"), {"1": 1, "2": 2}, f"{name} get_multi with a prefix")
    same(client.add_multi({"many:1": 0, "fresh": 1}), ["many:1"], f"{name} add_multi names what was present")
    same(client.delete_multi(list(pairs)), True, f"{name} delete_multi")
    same(client.get_multi(list(pairs)), {}, f"{name} get_multi of deleted keys")

    same(client.set("large", LARGE), True, f"{name} set of 900 KiB")
    same(client.get("large"), LARGE, f"{name} get of 900 KiB")
    fails(lambda: client.set("large", TOO_LARGE), pylibmc.TooBig, f"{name} set of 2 MiB")
    same(client.get("large"), None, f"{name} a refused set leaves no stale value")
    same(client.set("large", b"small"), True, f"{name} the connection works after a refused set")

    ((_, stats),) = client.get_stats()
    same(stats["pointer_size"], b"64", f"{name} stats")

    client.set("brief", 1, time=2)
    client.set("touched", 2, time=2)
    client.set("forever", 3)
    same(client.touch("touched", 100), True, f"{name} touch")
    same(client.touch("absent", 100), False, f"{name} touch on absent")
    pass_seconds(2)
    same(client.get_multi(["brief", "touched", "forever"]), {"touched": 2, "forever": 3}, f"{name} after the expiry")
    client.flush_all()
    same(client.get("forever"), None, f"{name} flush_all")

# What a busy site sets: writes that wait for nothing, buffered, over the binary protocol; three servers, consistent hashing.
servers = WHERE if IS_UNIX else SERVERS
busy = pylibmc.Client(
    servers, binary=True, behaviors={"tcp_nodelay": True, "no_block": True, "buffer_requests": False, "ketama": True, "num_replicas": 0}
)
pairs = {f"busy:{n}": b"v" * (n % 300) for n in range(2000)}
for key, value in pairs.items():
    busy.set(key, value)
same(busy.get_multi(list(pairs)), pairs, "no_block with ketama")
pool = pylibmc.ClientPool(busy, 3)
with pool.reserve() as one, pool.reserve() as two:
    one.set("pooled", 1)
    same(two.get("pooled"), 1, "one pooled connection sees another's write")
quiet = pylibmc.Client(servers, behaviors={"_noreply": True})
quiet.set("quiet", 1)
same(quiet.get("quiet"), 1, "noreply set, then get")
done()
