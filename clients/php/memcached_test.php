<?php
// PECL Memcached over libmemcached: both protocols, then the options that busy Drupal sites set, then sessions.

require __DIR__ . '/check.php';

function everything(Memcached $m, string $name): void {
    $m->flush();
    $person = new stdClass();
    $person->name = 'nuthatch';
    foreach ([EVERY_BYTE, '', 'text', 42, -7, 2.5, true, false, null, ['a' => [1, 2]], $person] as $thing) {
        same($m->set('typed', $thing), true, "$name set");
        $got = $m->get('typed');
        same(is_object($thing) ? (array) $got : $got, is_object($thing) ? (array) $thing : $thing, "$name get: flags tell the type");
    }
    same($m->get('absent'), false, "$name get of an absent key");
    same($m->getResultCode(), Memcached::RES_NOTFOUND, "$name its result code");

    same($m->add('typed', 1), false, "$name add on present");
    same($m->add('b', 'mid'), true, "$name add on absent");
    same($m->replace('absent', 1), false, "$name replace on absent");
    $m->setOption(Memcached::OPT_COMPRESSION, false);
    same($m->append('b', '>'), true, "$name append");
    same($m->prepend('b', '<'), true, "$name prepend");
    same($m->append('absent', '>'), false, "$name append on absent");
    $m->setOption(Memcached::OPT_COMPRESSION, true);
    same($m->get('b'), '<mid>', "$name after append and prepend");
    same($m->replace('b', 'new'), true, "$name replace on present");
    same($m->delete('b'), true, "$name delete");
    same($m->delete('b'), false, "$name second delete");
    same($m->set(str_repeat('k', 250), 'v'), true, "$name set of a 250-byte key");
    same($m->get(str_repeat('k', 250)), 'v', "$name get of a 250-byte key");

    $m->set('n', 10);
    same($m->increment('n', 5), 15, "$name increment");
    same($m->decrement('n', 6), 9, "$name decrement");
    same($m->decrement('n', 100), 0, "$name decrement below nothing");
    same($m->increment('absent'), false, "$name increment on absent");
    if ($m->getOption(Memcached::OPT_BINARY_PROTOCOL)) {
        same($m->increment('fresh', 5, 100, 60), 100, "$name increment starts at the initial value");
        same($m->increment('fresh', 5, 100, 60), 105, "$name increment after the initial value");
    }
    $m->set('word', 'nuthatch');
    same($m->increment('word'), false, "$name increment of a word");

    $m->set('c', '1');
    $got = $m->get('c', null, Memcached::GET_EXTENDED);
    same($got['value'], '1', "$name extended get");
    same($m->cas($got['cas'], 'c', '2'), true, "$name cas that matches");
    same($m->cas($got['cas'], 'c', '3'), false, "$name cas that is out of date");
    same($m->getResultCode(), Memcached::RES_DATA_EXISTS, "$name its result code");
    same($m->get('c'), '2', "$name after both cas");

    $pairs = [];
    for ($n = 0; $n < 1000; $n++) {
        $pairs["many:$n"] = "value $n";
    }
    same($m->setMulti($pairs), true, "$name setMulti");
    $got = $m->getMulti(array_merge(array_keys($pairs), ['absent']), Memcached::GET_PRESERVE_ORDER);
    same(array_filter($got, fn($v) => $v !== null), $pairs, "$name getMulti of 1000 keys");
    $uniques = array_column($m->getMulti(array_keys($pairs), Memcached::GET_EXTENDED), 'cas');
    // Through a pool before several servers each has its own, and two may give the same to two items.
    same(getenv('UNIQUES') !== 'of one' || count(array_unique($uniques)) === 1000, true, "$name every item has a unique of its own");
    same($m->getDelayed(['many:1', 'many:2'], true), true, "$name getDelayed");
    same(count($m->fetchAll()), 2, "$name fetchAll");
    same(array_unique(array_values($m->deleteMulti(array_keys($pairs)))), [true], "$name deleteMulti");
    same($m->getMulti(array_keys($pairs)), [], "$name getMulti of deleted keys");
    same($m->setByKey('server', 'by-key', 1), true, "$name setByKey");
    same($m->getByKey('server', 'by-key'), 1, "$name getByKey");

    foreach ([Memcached::COMPRESSION_FASTLZ, Memcached::COMPRESSION_ZLIB] as $kind) {
        $m->setOption(Memcached::OPT_COMPRESSION_TYPE, $kind);
        same($m->set('squeezed', str_repeat('nuthatch ', 300000)), true, "$name compressed set");
        same($m->get('squeezed'), str_repeat('nuthatch ', 300000), "$name compressed get");
    }
    $m->setOption(Memcached::OPT_COMPRESSION, false);
    same($m->set('large', LARGE), true, "$name set of 900 KiB");
    same($m->get('large'), LARGE, "$name get of 900 KiB");
    same($m->set('large', TOO_LARGE), false, "$name set of 2 MiB");
    same($m->get('large'), false, "$name a refused set leaves no stale value");
    same($m->set('large', 'small'), true, "$name the connection works after a refused set");
    $m->setOption(Memcached::OPT_COMPRESSION, true);

    same(count($m->getVersion()), 1, "$name getVersion");
    $stats = array_values($m->getStats())[0];
    same($stats['pointer_size'], 64, "$name getStats pointer_size");
    same($stats['curr_items'] > 0, true, "$name getStats curr_items");
    same(array_values($m->getStats('settings'))[0]['item_size_max'], 1048576, "$name getStats settings");
    same(count(array_values($m->getStats('slabs'))[0]) > 0, true, "$name getStats slabs");
    same(count(array_values($m->getStats('items'))[0]) > 0, true, "$name getStats items");

    $m->set('brief', 1, 2);
    $m->set('absolute', 1, time() + 2);
    $m->set('touched', 2, 2);
    $m->set('far', 3, time() + 86400 * 60);
    $m->set('forever', 4);
    same($m->touch('touched', 100), true, "$name touch");
    same($m->touch('absent', 100), false, "$name touch on absent");
    pass_seconds(2);
    same($m->getMulti(['brief', 'absolute', 'touched', 'far', 'forever']), ['touched' => 2, 'far' => 3, 'forever' => 4], "$name after the expiry");
    same($m->flush(), true, "$name flush");
    same($m->get('forever'), false, "$name get after flush");
    $m->quit();
}

foreach ([false, true] as $binary) {
    $m = new Memcached();
    $m->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $m->setOption(Memcached::OPT_RECV_TIMEOUT, 20000000);
    $m->addServer(HOST, PORT);
    everything($m, $binary ? 'binary' : 'text');
}

// The options of a tuned Drupal site (TCP_NODELAY, binary, buffered writes, no block), its several servers spread by ketama, its key
// prefix, igbinary; ten thousand writes, reads and deletes over five bins as its own measurement does.
$m = new Memcached();
same($m->setOptions([
    Memcached::OPT_TCP_NODELAY => true,
    Memcached::OPT_BINARY_PROTOCOL => true,
    Memcached::OPT_BUFFER_WRITES => true,
    Memcached::OPT_NO_BLOCK => true,
    Memcached::OPT_DISTRIBUTION => Memcached::DISTRIBUTION_CONSISTENT,
    Memcached::OPT_LIBKETAMA_COMPATIBLE => true,
    Memcached::OPT_PREFIX_KEY => 'site:',
    Memcached::OPT_SERIALIZER => Memcached::SERIALIZER_IGBINARY,
    Memcached::OPT_POLL_TIMEOUT => 20000,
]), true, 'the options of a tuned site');
if (IS_UNIX) {
    $m->addServer(HOST, 0);
} else {
    $m->addServers(array_map(fn($s) => [$s[0], (int) $s[1]], SERVERS));
}
$m->flush();
$bins = ['cache', 'cache_path', 'cache_filter', 'cache_bootstrap', 'cache_page'];
$data = array_fill(0, 100, 123456789);
for ($n = 0; $n < 2000; $n++) {
    foreach ($bins as $bin) {
        $m->set("{$bin}_$n", [$n, $data], $n % 2 ? 0 : 3600);
    }
    // A page's worth of writes, then a read that waits for them. libmemcached 1.1.4 has at most 50 ms of patience when, with more than
    // 64 KiB under way, it collects answers, and asks the kernel to hold back the end of what it sent: longer runs of writes lose some,
    // whatever the server.
    same([$m->flushBuffers(), $m->get("cache_page_$n")], [true, [$n, $data]], 'a page is read back');
}
$wrong = 0;
for ($n = 0; $n < 2000; $n++) {
    foreach ($bins as $bin) {
        $wrong += $m->get("{$bin}_$n") === [$n, $data] ? 0 : 1;
    }
}
same($wrong, 0, 'every buffered write is read back');
foreach ($bins as $bin) {
    $got = $m->getMulti(array_map(fn($n) => "{$bin}_$n", range(0, 1999)));
    same(count($got), 2000, 'a bin in one getMulti');
}
for ($n = 0; $n < 2000; $n++) {
    foreach ($bins as $bin) {
        $m->delete("{$bin}_$n");
    }
    same([$m->flushBuffers(), $m->get("cache_page_$n")], [true, false], 'a page is gone');
}
foreach ($bins as $bin) {
    same($m->getMulti(array_map(fn($n) => "{$bin}_$n", range(0, 1999))), [], 'every buffered delete is done');
}
// Its lock: add with an expiry, one winner.
same([$m->add('semaphore', 'one', 30), $m->flushBuffers(), $m->get('semaphore')], [true, true, 'one'], 'a lock is taken');

// Sessions, with locking, by the module's own handler.
ini_set('session.save_handler', 'memcached');
ini_set('session.save_path', IS_UNIX ? SERVER . ':0' : SERVER);
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
session_id('nuthatchsession');
same(session_start(), true, 'a session starts');
$_SESSION['basket'] = ['seed' => 3];
same(session_write_close(), true, 'a session is written');
$_SESSION = [];
same(session_start(), true, 'a session starts again');
same($_SESSION, ['basket' => ['seed' => 3]], 'a session is read');
same(session_destroy(), true, 'a session is destroyed');
session_id('nuthatchsession');
session_start();
same($_SESSION, [], 'a destroyed session is empty');
session_write_close();
done();
