"""Writes compressed values (`write pylibmc` or `write pymemcache`), or reads what was written as they would (`read …`). See
../php/compression.php."""

import sys

from check import HOST, PORT, done, same

what, kind = sys.argv[1:]
if kind == "pylibmc":
    import pylibmc

    client = pylibmc.Client([f"{HOST}:{PORT}"])
    put = lambda key, value: client.set(key, value, min_compress_len=400)
else:
    from pymemcache.client.base import Client
    from pymemcache.serde import CompressedSerde

    client = Client((HOST, PORT), serde=CompressedSerde(), no_delay=True)
    put = lambda key, value: client.set(key, value, noreply=False)

for lines in [10, 300, 4000, 20000]:
    text = "".join(f"line {n * n % 9973} of {lines}\n" for n in range(lines)).encode()
    if what == "write":
        same(put(f"theirs:{lines}", text), True, f"set theirs:{lines}")
    same(client.get(f"{'theirs' if what == 'write' else 'ours'}:{lines}"), text, f"{kind} {lines}")
done()
