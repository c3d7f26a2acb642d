<?php
// PECL Memcache, which has its own text and binary protocol code and its own hashing.

require __DIR__ . '/check.php';

function everything(Memcache $m, string $name): void {
    same($m->flush(), true, "$name flush");
    $person = new stdClass();
    $person->name = 'nuthatch';
    foreach ([EVERY_BYTE, '', 'text', 42, 2.5, true, ['a' => [1, 2]], $person] as $thing) {
        same($m->set('typed', $thing), true, "$name set");
        $got = $m->get('typed');
        same(is_object($thing) ? (array) $got : $got, is_object($thing) ? (array) $thing : $thing, "$name get: flags tell the type");
    }
    same($m->get('absent'), false, "$name get of an absent key");
    same($m->add('typed', 1), false, "$name add on present");
    same($m->add('b', 'mid'), true, "$name add on absent");
    // Its binary code takes the answer "not found" to a replace for a failed server and stops using it.
    if ($name === 'ascii') {
        same($m->replace('absent', 1), false, "$name replace on absent");
    }
    same($m->replace('b', 'new'), true, "$name replace on present");
    same($m->append('b', '>'), true, "$name append");
    same($m->prepend('b', '<'), true, "$name prepend");
    same($m->get('b'), '<new>', "$name after append and prepend");
    same($m->delete('b'), true, "$name delete");
    same($m->delete('b'), false, "$name second delete");
    same($m->get('b'), false, "$name get after delete");

    $m->set('n', '10');
    same($m->increment('n', 5), 15, "$name increment");
    same($m->decrement('n', 6), 9, "$name decrement");
    same($m->decrement('n', 100), 0, "$name decrement below nothing");
    same($m->increment('absent'), false, "$name increment on absent");

    $m->set('c', '1');
    $flags = $cas = null;
    same($m->get('c', $flags, $cas), '1', "$name get with unique");
    same($m->cas('c', '2', 0, 0, $cas), true, "$name cas that matches");
    same($m->cas('c', '3', 0, 0, $cas), false, "$name cas that is out of date");
    same($m->get('c'), '2', "$name after both cas");

    $pairs = [];
    for ($n = 0; $n < 1000; $n++) {
        $pairs["many:$n"] = "value $n";
        $m->set("many:$n", "value $n");
    }
    $got = $m->get(array_merge(array_keys($pairs), ['absent']));
    ksort($got);
    ksort($pairs);
    same($got, $pairs, "$name get of 1000 keys");

    same($m->set('squeezed', str_repeat('nuthatch ', 300000), MEMCACHE_COMPRESSED), true, "$name compressed set");
    same($m->get('squeezed'), str_repeat('nuthatch ', 300000), "$name compressed get");
    $large = random_bytes(900 * 1024);
    same($m->set('large', $large), true, "$name set of 900 KiB");
    same($m->get('large') === $large, true, "$name get of 900 KiB");
    same(@$m->set('large', TOO_LARGE), false, "$name set of 2 MiB");
    same($m->get('large'), false, "$name a refused set leaves no stale value");
    same($m->set('large', 'small'), true, "$name the connection works after a refused set");

    same(is_string($m->getVersion()), true, "$name getVersion");
    // Its binary code has no stats.
    if ($name === 'ascii') {
        same($m->getStats()['pointer_size'], '64', "$name getStats");
        same($m->getStats('slabs') !== false, true, "$name getStats slabs");
    }

    $m->set('brief', '1', 0, 2);
    $m->set('forever', '2');
    pass_seconds(2);
    same($m->get(['brief', 'forever']), ['forever' => '2'], "$name after the expiry");
    same($m->flush(), true, "$name flush");
    same($m->get('forever'), false, "$name get after flush");
    $m->close();
}

foreach (['ascii', 'binary'] as $protocol) {
    ini_set('memcache.protocol', $protocol);
    $m = new Memcache();
    same($m->connect(IS_UNIX ? 'unix://' . SERVER : HOST, PORT, 20), true, "$protocol connect");
    everything($m, $protocol);
}

ini_set('memcache.protocol', 'ascii');
if (!IS_UNIX) {
    $m = new MemcachePool();
    foreach (SERVERS as [$host, $port]) {
        same($m->addServer($host, (int) $port), true, 'addServer');
    }
    for ($n = 0; $n < 1000; $n++) {
        $m->set("spread:$n", "value $n");
    }
    same(count($m->get(array_map(fn($n) => "spread:$n", range(0, 999)))), 1000, 'get over three servers');
    $held = array_column($m->getExtendedStats(), 'curr_items');
    same(min($held) > 0, true, 'every server holds some');
}

ini_set('session.save_handler', 'memcache');
ini_set('session.save_path', IS_UNIX ? 'unix://' . SERVER . ':0' : 'tcp://' . SERVER);
ini_set('memcache.session_redundancy', '1');
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
session_id('nuthatchsession2');
same(session_start(), true, 'a session starts');
$_SESSION['basket'] = ['seed' => 3];
same(session_write_close(), true, 'a session is written');
$_SESSION = [];
same(session_start(), true, 'a session starts again');
same($_SESSION, ['basket' => ['seed' => 3]], 'a session is read');
same(session_destroy(), true, 'a session is destroyed');
done();
