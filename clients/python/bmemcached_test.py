"""python-binary-memcached: quiet and plain commands of the binary protocol, with the uniques it returns."""

import bmemcached
from check import *

client = bmemcached.Client([SERVER], socket_timeout=20)
client.flush_all()

value = {"name": "nuthatch", "numbers": [1, 2.5]}
for thing in (value, EVERY_BYTE, "text", 42, True):
    same(client.set("typed", thing), True, "set")
    same(client.get("typed"), thing, "get: flags tell the type")
same(client.get("absent"), None, "get of an absent key")
same(client.add("typed", 1), False, "add on present")
same(client.add("b", 1), True, "add on absent")
same(client.replace("absent", 1), False, "replace on absent")
same(client.replace("b", 2), True, "replace on present")
same(client.delete("b"), True, "delete")
same(client.get("b"), None, "get after delete")
same(client.set(LONGEST_KEY, "v"), True, "set of a 250-byte key")
same(client.get(LONGEST_KEY), "v", "get of a 250-byte key")

same(client.incr("n", 5, default=10), 10, "incr on absent starts at the default")
same(client.incr("n", 5), 15, "incr")
same(client.decr("n", 6), 9, "decr")
same(client.decr("n", 100), 0, "decr below nothing")

client.set("c", "1")
got, unique = client.gets("c")
same(got, "1", "gets")
same(client.cas("c", "2", unique), True, "cas that matches")
same(client.cas("c", "3", unique), False, "cas that is out of date")
same(client.get("c"), "2", "after both cas")
same(client.delete("c", cas=unique), False, "delete with an old unique")
same(client.delete("c", cas=client.gets("c")[1]), True, "delete with the unique")

pairs = {f"many:{n}": f"value {n}" for n in range(1000)}
same(client.set_multi(pairs), [], "set_multi by quiet sets")
same(client.get_multi([*pairs, "absent"]), pairs, "get_multi of 1000 keys by quiet gets")
with_uniques = client.get_multi(list(pairs), get_cas=True)
same(len({unique for _, unique in with_uniques.values()}), 1000, "every item has a unique of its own")
same(client.delete_multi(list(pairs)), True, "delete_multi by quiet deletes")
same(client.get_multi(list(pairs)), {}, "get_multi of deleted keys")

same(client.set("large", LARGE, compress_level=0), True, "set of 900 KiB")
same(client.get("large"), LARGE, "get of 900 KiB")
fails(lambda: client.set("large", TOO_LARGE, compress_level=0), bmemcached.exceptions.MemcachedException, "set of 2 MiB")
same(client.get("large"), None, "a refused set leaves no stale value")

(stats,) = client.stats().values()
same(stats["pointer_size"], b"64", "stats")
(settings,) = client.stats("settings").values()
same(settings["item_size_max"], b"1048576", "stats settings")

client.set("brief", "1", time=2)
client.set("forever", "3")
pass_seconds(2)
same(client.get("brief"), None, "after the expiry")
same(client.get("forever"), "3", "no expiry")
same(client.flush_all(), True, "flush_all")
same(client.get("forever"), None, "get after flush_all")
client.disconnect_all()
done()
