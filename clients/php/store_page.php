<?php
// Stores pages under their addresses, for nginx to serve: KEY FILE pairs on the command line.

require __DIR__ . '/check.php';

$m = new Memcached();
$m->setOption(Memcached::OPT_COMPRESSION, false);
$m->addServer(HOST, PORT);
foreach (array_chunk(array_slice($argv, 1), 2) as [$key, $file]) {
    same($m->set($key, file_get_contents($file)), true, "set of $key");
}
done();
