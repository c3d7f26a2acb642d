<?php

// For the end of sites/default/settings.php, with the module memcache (8.x-2.x) enabled and PHP's extension memcached.

// Two sockets of the Nuthatch on this host, and which bins go where.
$settings['memcache']['servers'] = [
  'unix:///run/nuthatch/default.sock' => 'default',
  'unix:///run/nuthatch/page.sock' => 'page',
];
$settings['memcache']['bins'] = [
  'default' => 'default',
  'page' => 'page',
  'dynamic_page_cache' => 'page',
];
// Sites that share the servers need a prefix each.
$settings['memcache']['key_prefix'] = 'example_site';
$settings['memcache']['extension'] = 'Memcached';
$settings['memcache']['options'] = [
  \Memcached::OPT_COMPRESSION => TRUE,
  \Memcached::OPT_BINARY_PROTOCOL => TRUE,
];

$settings['cache']['default'] = 'cache.backend.memcache';
// Forms in use must not be evicted: they stay in the database.
$settings['cache']['bins']['form'] = 'cache.backend.database';
