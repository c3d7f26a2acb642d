// memcached (3rd-Eden's): the text protocol, pooled and spread by ketama. It connects by TCP only.
'use strict';

const Memcached = require('memcached');
const { SERVER, SERVERS, EVERY_BYTE, LARGE, TOO_LARGE, same, passSeconds, run } = require('./check.js');

function promised(m) {
  const call = (name) => (...args) => new Promise((resolve, reject) => m[name](...args, (error, got) => (error ? reject(error) : resolve(got))));
  return new Proxy({}, { get: (_, name) => call(name) });
}

run(async () => {
  const client = new Memcached(SERVER, { timeout: 20000, poolSize: 4, maxValue: 4 * 1024 * 1024 });
  const m = promised(client);
  const fails = (promise) => promise.then((got) => got, () => false);

  await m.flush();
  for (const thing of [EVERY_BYTE, 'text', 42, true, { name: 'nuthatch', list: [1, 2] }]) {
    same(await m.set('typed', thing, 0), true, 'set');
    same(await m.get('typed'), thing, 'get: flags tell the type');
  }
  same(await m.get('absent'), undefined, 'get of an absent key');
  same(await fails(m.add('typed', 1, 0)), false, 'add on present');
  same(await m.add('b', 'mid', 0), true, 'add on absent');
  same(await fails(m.replace('absent', 1, 0)), false, 'replace on absent');
  same(await m.append('b', '>'), true, 'append');
  same(await m.prepend('b', '<'), true, 'prepend');
  same(await m.get('b'), '<mid>', 'after append and prepend');
  same(await m.del('b'), true, 'delete');
  same(await m.del('b'), false, 'second delete');
  await m.set('n', 10, 0);
  same(await m.incr('n', 5), 15, 'incr');
  same(await m.decr('n', 6), 9, 'decr');
  same(await m.incr('absent', 1), false, 'incr on absent');
  await m.set('c', '1', 0);
  const got = await m.gets('c');
  same(await m.cas('c', '2', got.cas, 0), true, 'cas that matches');
  same(await m.cas('c', '3', got.cas, 0), false, 'cas that is out of date');
  same(await m.get('c'), '2', 'after both cas');

  const keys = Array.from({ length: 1000 }, (_, n) => `many:${n}`);
  await Promise.all(keys.map((key, n) => m.set(key, `value ${n}`, 0)));
  same(await m.getMulti([...keys, 'absent']), Object.fromEntries(keys.map((key, n) => [key, `value ${n}`])), 'getMulti of 1000 keys');
  same(await m.set('large', LARGE, 0), true, 'set of 900 KiB');
  same(await m.get('large'), LARGE, 'get of 900 KiB');
  // A client of its own, since this one stops using a server for a while after such an answer.
  same(await fails(promised(new Memcached(SERVER, { maxValue: 4 * 1024 * 1024 })).set('large', TOO_LARGE, 0)), false, 'set of 2 MiB');
  same(await m.get('large'), undefined, 'a refused set leaves no stale value');
  same((await m.stats())[0].pointer_size, 64, 'stats');
  same((await m.settings())[0].item_size_max, 1048576, 'stats settings');
  same((await m.slabs()).length, 1, 'stats slabs');
  same((await m.items()).length, 1, 'stats items');
  same((await m.version()).length, 1, 'version');
  await m.set('brief', '1', 2);
  await m.set('touched', '2', 2);
  same(await m.touch('touched', 100), true, 'touch');
  await passSeconds(2);
  same(await m.getMulti(['brief', 'touched']), { touched: '2' }, 'after the expiry');
  await m.flush();
  same(await m.get('touched'), undefined, 'get after flush');
  client.end();

  const spread = promised(new Memcached(SERVERS));
  await Promise.all(keys.map((key) => spread.set(key, key, 0)));
  same(Object.keys(await spread.getMulti(keys)).length, 1000, 'three servers');
});
