// memjs: the binary protocol. It connects by TCP only.
'use strict';

const memjs = require('memjs');
const { SERVER, SERVERS, EVERY_BYTE, LARGE, TOO_LARGE, same, passSeconds, run } = require('./check.js');

run(async () => {
  const m = memjs.Client.create(SERVER, { timeout: 20, conntimeout: 20, retries: 1 });
  const value = async (key) => {
    const got = await m.get(key);
    return got.value === null ? null : got.value.toString();
  };

  await m.flush();
  same(await m.set('a', EVERY_BYTE, {}), true, 'set');
  same((await m.get('a')).value, EVERY_BYTE, 'get');
  same(await m.set('empty', '', {}), true, 'set of nothing');
  same(await value('empty'), '', 'get of nothing');
  same(await value('absent'), null, 'get of an absent key');
  same(await m.set('k'.repeat(250), 'v', {}), true, 'set of a 250-byte key');
  same(await value('k'.repeat(250)), 'v', 'get of a 250-byte key');
  same(await m.add('a', 'no', {}), false, 'add on present');
  same(await m.add('b', 'mid', {}), true, 'add on absent');
  same(await m.replace('absent', 'no', {}), false, 'replace on absent');
  same(await m.append('b', '>'), true, 'append');
  same(await m.prepend('b', '<'), true, 'prepend');
  same((await m.append('absent', '>').catch((error) => error)).message, 'MemJS APPEND: Item not stored', 'append on absent');
  // memjs 1.3.2's prepend sends the opcode of append.
  same(await value('b'), 'mid><', 'after append and prepend');
  same(await m.replace('b', 'new', {}), true, 'replace on present');
  same(await m.delete('b'), true, 'delete');
  same(await m.delete('b'), false, 'second delete');

  same((await m.increment('n', 5, { initial: 10 })).value, 10, 'increment starts at the initial value');
  same((await m.increment('n', 5, {})).value, 15, 'increment');
  same((await m.decrement('n', 6, {})).value, 9, 'decrement');
  same((await m.decrement('n', 100, {})).value, 0, 'decrement below nothing');

  const keys = Array.from({ length: 1000 }, (_, n) => `many:${n}`);
  await Promise.all(keys.map((key, n) => m.set(key, `value ${n}`, {})));
  const singles = await Promise.all(keys.map(value));
  same(singles, keys.map((_, n) => `value ${n}`), '1000 gets under way at once');

  same(await m.set('large', LARGE, {}), true, 'set of 900 KiB');
  same((await m.get('large')).value, LARGE, 'get of 900 KiB');
  const refused = await m.set('large', TOO_LARGE, {}).catch((error) => error);
  same(refused === true, false, 'set of 2 MiB');
  same(await value('large'), null, 'a refused set leaves no stale value');
  same(await m.set('large', 'small', {}), true, 'the connection works after a refused set');

  const stats = await new Promise((resolve, reject) => m.stats((error, server, got) => (error ? reject(error) : resolve(got))));
  same(stats.pointer_size, '64', 'stats');
  same(Number(stats.curr_items) > 1000, true, 'stats curr_items');
  const settings = await new Promise((resolve, reject) => m.statsWithKey('settings', (error, server, got) => (error ? reject(error) : resolve(got))));
  same(settings.item_size_max, '1048576', 'stats settings');

  await m.set('brief', '1', { expires: 2 });
  await m.set('touched', '2', { expires: 2 });
  await m.set('forever', '3', {});
  same(await m.touch('touched', 100), true, 'touch');
  same(await m.touch('absent', 100), false, 'touch on absent');
  await passSeconds(2);
  same(await value('brief'), null, 'after the expiry');
  same(await value('touched'), '2', 'after the touched expiry');
  await m.flush();
  same(await value('forever'), null, 'get after flush');
  m.close();

  const spread = memjs.Client.create(SERVERS.join(','), { timeout: 20, conntimeout: 20 });
  await Promise.all(keys.map((key) => spread.set(key, key, {})));
  const got = await Promise.all(keys.map((key) => spread.get(key)));
  same(got.map((one) => one.value.toString()), keys, 'three servers');
  spread.close();
});
