<?php
// A web host's Nuthatch before a fleet, as the examples describe it: stores and reads as their PHP files say. `drupal` or `mediawiki`;
// DIR stands in for /run/nuthatch, PORTS for the example's ports on loopback, in the order in which its file names them.

require __DIR__ . '/check.php';

[, $example] = $argv;

// What a site does with a bin, on $m; $there is another host's connection to the same fleet.
function bin(Memcached $m, Memcached $there, string $name): void {
    $rendered = ['#markup' => str_repeat("<p>nuthatch</p>\n", 2000), '#tags' => ['node:7']];
    same($m->set("$name:node:7", $rendered, 300), true, "$name set");
    same($m->get("$name:node:7"), $rendered, "$name get");
    same($m->get("$name:node:7"), $rendered, "$name get of the copy");
    same($m->getMulti(["$name:node:7", "$name:none"]), ["$name:node:7" => $rendered], "$name getMulti");
    same($m->delete("$name:node:7"), true, "$name delete");
    same($m->get("$name:node:7"), false, "$name get of what was deleted");
    // Locks, as lock.inc and WANObjectCache take them.
    same($m->add("$name:lock", 1, 30), true, "$name lock");
    same($m->add("$name:lock", 1, 30), false, "$name lock that is taken");
    same($there->add("$name:lock", 1, 30), false, "$name lock that is taken, by another socket");
    same($m->delete("$name:lock"), true, "$name unlock");
    same($m->set("$name:count", 1), true, "$name set of a number");
    same($m->increment("$name:count"), 2, "$name increment");
    same((int) $m->get("$name:count"), 2, "$name get of the number");
    same($m->set("$name:shared", 'seen by all', 300), true, "$name set of what is shared");
    same($there->get("$name:shared"), 'seen by all', "$name get by another socket");
}

if ($example === 'drupal') {
    $settings = [];
    require __DIR__ . '/../../examples/drupal/settings.php';
    $memcache = $settings['memcache'];
    $connections = [];
    foreach ($memcache['servers'] as $server => $cluster) {
        $m = new Memcached();
        $m->setOptions($memcache['options']);
        $m->addServer(str_replace('unix:///run/nuthatch', getenv('DIR'), $server), 0);
        $connections[$cluster] = $m;
    }
    same(count($connections), 2, 'two sockets');
    foreach ($memcache['bins'] as $bin => $cluster) {
        $other = $connections[$cluster === 'page' ? 'default' : 'page'];
        bin($connections[$cluster], $other, $memcache['key_prefix'] . ":$bin");
    }
} else {
    require __DIR__ . '/../../examples/mediawiki/LocalSettings.php';
    $ports = explode(' ', getenv('PORTS'));
    $connections = [];
    foreach ([$wgMainCacheType, $wgMessageCacheType, $wgSessionCacheType, $wgParserCacheType] as $cache) {
        // As MemcachedPeclBagOStuff makes its client.
        $m = new Memcached();
        $m->setOption(Memcached::OPT_LIBKETAMA_COMPATIBLE, true);
        $m->setOption(Memcached::OPT_SERIALIZER, Memcached::SERIALIZER_PHP);
        foreach ($wgObjectCaches[$cache]['servers'] as $server) {
            [$host, $port] = explode(':', $server);
            $m->addServer($host, (int) $ports[$port - 11211]);
        }
        $connections[$cache] = $m;
    }
    same(count($connections), 3, 'three pools');
    foreach ($connections as $cache => $m) {
        bin($m, $connections[$wgSessionCacheType], "my_wiki:$cache");
    }
}
done();
