<?php
// Answers where php-memcached, and so libmemcached, places keys. Its argument is a file of keys, one a line. Each line of the input is
// a case: name, distribution, hash, options, servers, with tabs between them; a server is host, port and weight. For each case a line
// comes back: the name, and the index of every key's server.

ini_set('memory_limit', '1G');
$keys = file($argv[1], FILE_IGNORE_NEW_LINES);
$hashes = array_flip(['one_at_a_time', 'md5', 'crc', 'fnv1_64', 'fnv1a_64', 'fnv1_32', 'fnv1a_32', 'hsieh', 'murmur', 'jenkins', 'murmur3']);
$answers = 0;

function option(Memcached $m, int $option, $value, string $what): void {
    if (!$m->setOption($option, $value)) {
        echo "$what: php-memcached refuses it\n";
        exit(1);
    }
}

while (($line = fgets(STDIN)) !== false) {
    [$name, $distribution, $hash, $options, $list] = explode("\t", rtrim($line, "\n"));
    $m = new Memcached();
    $options = $options === '' ? [] : explode(',', $options);
    // The hash before the ring, which is laid out by it.
    if ($hash !== '' && $distribution !== 'ketama_weighted') {
        option($m, Memcached::OPT_HASH, $hashes[$hash], "$name: hash");
    }
    match ($distribution) {
        'modula' => option($m, Memcached::OPT_DISTRIBUTION, Memcached::DISTRIBUTION_MODULA, $name),
        'ketama' => option($m, Memcached::OPT_DISTRIBUTION, Memcached::DISTRIBUTION_CONSISTENT, $name),
        'ketama_spy' => option($m, Memcached::OPT_DISTRIBUTION, 4, $name),
        'ketama_weighted' => option($m, Memcached::OPT_LIBKETAMA_COMPATIBLE, true, $name),
    };
    if ($hash !== '' && $distribution === 'ketama_weighted') {
        option($m, Memcached::OPT_HASH, $hashes[$hash], "$name: hash");
    }
    $dead = null;
    foreach ($options as $word) {
        [$key, $value] = explode('=', $word . '=');
        match ($key) {
            'sort_hosts' => option($m, Memcached::OPT_SORT_HOSTS, true, $name),
            'namespace' => option($m, Memcached::OPT_PREFIX_KEY, $value, $name),
            'hash_with_namespace' => option($m, Memcached::OPT_HASH_WITH_PREFIX_KEY, true, $name),
            'dead' => $dead = (int) $value,
        };
    }
    if ($dead !== null) {
        option($m, Memcached::OPT_SERVER_FAILURE_LIMIT, 1, $name);
        option($m, Memcached::OPT_AUTO_EJECT_HOSTS, true, $name);
        option($m, Memcached::OPT_RETRY_TIMEOUT, 600, $name);
        option($m, Memcached::OPT_CONNECT_TIMEOUT, 2000, $name);
    }
    $servers = array_map(fn($s) => explode(' ', $s), explode(';', $list));
    $index = [];
    foreach ($servers as $i => [$host, $port, $weight]) {
        $index["$host:$port"] = $i;
    }
    $m->addServers(array_map(fn($s) => [$s[0], (int) $s[1], (int) $s[2]], $servers));
    $where = function (string $key) use ($m, $index) {
        $server = $m->getServerByKey($key);
        return $index["{$server['host']}:{$server['port']}"];
    };
    if ($dead !== null) {
        // Its keys are asked for until it is out.
        $tries = 0;
        foreach ($keys as $key) {
            if ($where($key) === $dead) {
                $m->get($key);
                if ($where($key) !== $dead) {
                    break;
                }
                if (++$tries > 50) {
                    echo "$name: server $dead was not ejected after $tries failures: {$m->getResultMessage()}\n";
                    exit(1);
                }
            }
        }
    }
    echo $name, ' ', implode(' ', array_map($where, $keys)), "\n";
    $answers++;
}
echo "ok $answers\n";
