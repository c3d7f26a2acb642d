<?php
// Writes compressed values (`write TYPE`, TYPE zlib or fastlz), or reads what was written as php-memcached would (`read TYPE`).
// The value of `KEY:N` is N lines, see text().

require __DIR__ . '/check.php';

[, $what, $type] = $argv;
$m = new Memcached();
$m->addServer(HOST, PORT);
$m->setOption(Memcached::OPT_COMPRESSION, true);
$m->setOption(Memcached::OPT_COMPRESSION_TYPE, constant('Memcached::COMPRESSION_' . strtoupper($type)));

function text(int $lines): string {
    return implode('', array_map(fn($n) => 'line ' . $n * $n % 9973 . " of $lines\n", range(0, $lines - 1)));
}

foreach ([10, 300, 4000, 20000] as $lines) {
    if ($what === 'write') {
        same($m->set("theirs:$lines", text($lines)), true, "set theirs:$lines");
    }
    same($m->get(($what === 'write' ? 'theirs' : 'ours') . ":$lines"), text($lines), "$type $lines");
}
done();
