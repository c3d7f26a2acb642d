"""emcache: an asynchronous client that keeps many requests under way."""

import asyncio

import emcache
from check import *


async def main():
    where = emcache.MemcachedUnixSocketPath(SERVER) if IS_UNIX else emcache.MemcachedHostAddress(HOST, PORT)
    client = await emcache.create_client([where], timeout=20)
    await client.flush_all(where)
    await client.set(b"a", EVERY_BYTE, flags=7)
    item = await client.get(b"a", return_flags=True)
    same((item.value, item.flags), (EVERY_BYTE, 7), "set and get")
    same(await client.get(b"absent"), None, "get of an absent key")
    for name, call in (("add", client.add(b"a", b"1")), ("replace", client.replace(b"no", b"1")), ("append", client.append(b"no", b"1"))):
        try:
            await call
            sys.exit(f"{name} was stored and must not be")
        except emcache.NotStoredStorageCommandError:
            pass
    item = await client.gets(b"a")
    await client.cas(b"a", b"10", item.cas)
    same(await client.increment(b"a", 5), 15, "increment")
    same(await client.decrement(b"a", 100), 0, "decrement below nothing")
    try:
        await client.increment(b"absent", 1)
        sys.exit("an absent key was incremented")
    except emcache.NotFoundCommandError:
        pass
    await client.touch(b"a", 100)
    same((await client.gat(100, b"a")).value, b"0 ", "gat: decrement keeps the length")
    pairs = {b"many:%d" % n: b"value %d" % n for n in range(1000)}
    await asyncio.gather(*(client.set(key, value) for key, value in pairs.items()))
    got = await client.get_many(list(pairs))
    same({key: item.value for key, item in got.items()}, pairs, "get_many of 1000 keys")
    singles = await asyncio.gather(*(client.get(key) for key in pairs))
    same([item.value for item in singles], list(pairs.values()), "1000 gets under way at once")
    await client.delete(b"a")
    same(await client.get(b"a"), None, "get after delete")
    same((await client.stats(where))["pointer_size"], "64", "stats")
    true(await client.version(where), "version")
    await client.flush_all(where)
    same(await client.get_many(list(pairs)), {}, "flush_all")
    await client.close()


asyncio.run(main())
done()
