"""meta-memcache: the meta commands with the flags its high-level calls use, recaching and stale items among them."""

from check import *
from meta_memcache import (
    CacheClient,
    ConnectionPool,
    Key,
    LeasePolicy,
    RecachePolicy,
    ServerAddress,
    SetMode,
    StalePolicy,
    connection_pool_factory_builder,
)


def unix_pool(address):
    def connect():
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(SERVER)
        return connection

    return ConnectionPool(server=str(address), socket_factory_fn=connect, initial_pool_size=1, max_pool_size=3)


pools = unix_pool if IS_UNIX else connection_pool_factory_builder(recv_timeout=20, connection_timeout=20)
client = CacheClient.cache_client_from_servers([ServerAddress(SERVER, 0) if IS_UNIX else ServerAddress(HOST, PORT)], pools)

value = {"name": "nuthatch", "numbers": [1, 2.5]}
for thing in (value, EVERY_BYTE, b"", "text", 42, True):
    same(client.set("typed", thing, ttl=100), True, "ms")
    same(client.get("typed"), thing, "mg: flags tell the type")
same(client.get("absent"), None, "mg of an absent key")
same(client.set(Key("binary \0 key \xff"), b"v", ttl=100), True, "ms of a base64 key")
same(client.get(Key("binary \0 key \xff")), b"v", "mg of a base64 key")
same(client.set("typed", 1, ttl=100, set_mode=SetMode.ADD), False, "ms in add mode on present")
same(client.refill("b", b"mid", ttl=100), True, "ms in add mode on absent")
same(client.set("b", b">", ttl=100, set_mode=SetMode.APPEND), True, "ms in append mode")
same(client.set("b", b"<", ttl=100, set_mode=SetMode.PREPEND), True, "ms in prepend mode")
same(client.set("absent", b"x", ttl=100, set_mode=SetMode.REPLACE), False, "ms in replace mode on absent")
same(client.set("absent", b"x", ttl=100, set_mode=SetMode.APPEND), False, "ms in append mode on absent")
same(client.get("b"), b"<mid>", "after append and prepend")
same(client.delete("b"), True, "md")
same(client.delete("b"), False, "md of an absent key")
same(client.invalidate("b"), True, "an absent key counts as invalidated")

got, unique = client.get_cas("typed")
same(client.set("typed", b"new", ttl=100, cas_token=unique), True, "ms with the unique")
same(client.set("typed", b"no", ttl=100, cas_token=unique), False, "ms with an old unique")
same(client.delete("typed", cas_token=unique), False, "md with an old unique")
same(client.get("typed"), b"new", "after them")

pairs = {Key(f"many:{n}"): f"value {n}" for n in range(1000)}
for n, (key, thing) in enumerate(pairs.items()):
    # The client reads the answers to the no-ops it sends after such writes only with the next answer it waits for; a UNIX socket
    # holds few hundred of them.
    client.set(key, thing, ttl=100, no_reply=n % 100 != 99)
same(client.get("many:998"), "value 998", "mg after noreply ms")
same(client.multi_get(list(pairs)), pairs, "1000 pipelined mg")

# The client sends with one sendmsg and does not send the rest of what a UNIX socket's buffer did not hold.
large = LARGE[: 64 * 1024] if IS_UNIX else LARGE
same(client.set("large", large, ttl=100), True, "ms of a large value")
same(client.get("large"), large, "mg of a large value")

same(client.delta_initialize("n", 5, initial_value=10, initial_ttl=100), True, "ma with an initial value")
same(client.delta_and_get("n", 5), 15, "ma that returns the value")
same(client.delta_and_get("n", -6), 9, "ma that decrements")
same(client.delta_initialize_and_get("fresh", 1, initial_value=7, initial_ttl=100), 7, "ma returns the initial value")
same(client.delta("absent", 1), False, "ma on absent")

# A miss creates an empty item and one client is told to fill it; the others wait.
lease = LeasePolicy(ttl=30, miss_retries=1)
same(client.get_or_lease("leased", lease_policy=lease), None, "mg N: the first client wins")
same(client.set("leased", b"filled", ttl=100), True, "the winner fills")
same(client.get_or_lease("leased", lease_policy=lease), b"filled", "mg N after it is filled")

# An invalidated item is stale: one client is told to refresh it, the others go on with what is there.
client.set("stale", b"old", ttl=100)
got, unique = client.get_cas("stale")
same(client.invalidate("stale", cas_token=unique, stale_policy=StalePolicy(30)), True, "md I")
client.touch("typed", ttl=50)
got = client.get_cas("stale", recache_policy=RecachePolicy(30))
same(got[0], None, "the first client is to refresh a stale item")
got = client.get_cas("stale", recache_policy=RecachePolicy(30))
same(got[0], b"old", "the second is given the stale value")
same(client.touch("absent", ttl=50), False, "touch of an absent key")

client.set("brief", b"1", ttl=2)
client.set("forever", b"2", ttl=None)
pass_seconds(2)
same(client.get("brief"), None, "after the expiry")
same(client.get("forever"), b"2", "no expiry")
same(client.get("forever", touch_ttl=2), b"2", "mg T")
pass_seconds(2)
same(client.get("forever"), None, "after the touched expiry")
done()
