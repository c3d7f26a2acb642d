<?php
// Forgetting a prefix or a tag from stock PHP clients, which can send nothing but memcached's commands: by reserved keys. The
// server runs with -o reserved_keys.

require __DIR__ . '/check.php';

// What a version key is for: all pages of a node, of which nobody keeps a list.
function forgets(callable $set, callable $get, callable $delete, callable $increment, string $name): void {
    foreach (['page:1:en', 'page:1:de', 'page:2:en', 'pages', 'menu:1'] as $key) {
        same($set($key, "old $key"), true, "$name set");
    }
    same($delete('nuthatch:forget:prefix:page:1:'), true, "$name delete of a reserved key");
    same($get('page:1:en'), false, "$name first page");
    same($get('page:1:de'), false, "$name second page");
    same($get('page:2:en'), 'old page:2:en', "$name another node");
    $set('page:1:en', 'new');
    same($get('page:1:en'), 'new', "$name stored afterwards");
    $first = $increment('nuthatch:forget:prefix:page:');
    same(is_int($first) && $first > 0, true, "$name increment of a reserved key");
    same($get('page:1:en'), false, "$name every node");
    same($get('page:2:en'), false, "$name every node");
    same($get('pages'), 'old pages', "$name no prefix of it");
    same($get('menu:1'), 'old menu:1', "$name another prefix");
    same($increment('nuthatch:forget:prefix:page:') > $first, true, "$name the number rises");
    same($delete('nuthatch:forget:prefix:page'), false, "$name what is no prefix");
}

foreach ([false, true] as $binary) {
    $m = new Memcached();
    $m->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $m->addServer(HOST, PORT);
    forgets(
        fn($key, $value) => $m->set($key, $value),
        fn($key) => $m->get($key),
        fn($key) => $m->delete($key),
        fn($key) => $m->increment($key),
        $binary ? 'Memcached, binary' : 'Memcached, text',
    );
}

$m = new Memcache();
$m->connect(IS_UNIX ? 'unix://' . SERVER : HOST, PORT);
forgets(
    fn($key, $value) => $m->set($key, $value),
    fn($key) => $m->get($key),
    fn($key) => $m->delete($key),
    fn($key) => $m->increment($key),
    'Memcache',
);

done();
