"""Forgetting a prefix or a tag with pymemcache: by reserved keys, which is all that its methods can send, and by the commands themselves
through raw_command. The server runs with -o reserved_keys.
"""

from check import *
from pymemcache.client.base import Client, PooledClient

WHERE = SERVER if IS_UNIX else (HOST, PORT)


def prefixes(client, name):
    pairs = {f"bin:{n}": b"%d" % n for n in range(100)}
    client.set_many(pairs, noreply=False)
    client.set("other:1", b"1", noreply=False)
    same(client.delete("nuthatch:forget:prefix:bin:", noreply=False), True, f"{name} delete of a reserved key")
    same(client.get_many([*pairs, "other:1"]), {"other:1": b"1"}, f"{name} the rest")
    same(client.incr("bin:1", 1), None, f"{name} incr of what was forgotten")
    same(client.add("bin:1", b"new", noreply=False), True, f"{name} add over what was forgotten")
    first = client.incr("nuthatch:forget:prefix:bin:", 1)
    same(client.get("bin:1"), None, f"{name} incr of a reserved key")
    true(client.incr("nuthatch:forget:prefix:bin:", 1) > first, f"{name} the number rises")
    client.set("bin:1", b"1", noreply=False)
    same(client.delete("nuthatch:forget:prefix:bin:", noreply=True), True, f"{name} noreply delete")
    same(client.get("bin:1"), None, f"{name} noreply delete forgets")
    same(client.delete("nuthatch:forget:prefix:bin", noreply=False), False, f"{name} what is no prefix")


def commands(client, name):
    client.set("bin:1", b"1", noreply=False)
    same(client.raw_command(b"forget prefix bin:"), b"OK", f"{name} forget prefix")
    same(client.get("bin:1"), None, f"{name} after forget prefix")
    same(client.raw_command(b"ms page 2 T60 F0 Lnode-7,user-3\r\nhi"), b"HD", f"{name} a set with tags")
    same(client.get("page"), b"hi", f"{name} get of an item with tags")
    same(client.append("page", b"!", noreply=False), True, f"{name} append")
    same(client.raw_command(b"forget tag user-4"), b"OK", f"{name} another tag")
    same(client.get("page"), b"hi!", f"{name} after another tag")
    same(client.delete("nuthatch:forget:tag:user-3", noreply=False), True, f"{name} a tag by a reserved key")
    same(client.get("page"), None, f"{name} after its tag")


for made, name in [(Client(WHERE, timeout=20), "Client"), (PooledClient(WHERE, timeout=20), "PooledClient")]:
    prefixes(made, name)
    commands(made, name)

done()
