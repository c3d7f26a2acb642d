<?php

// For the end of sites/default/settings.php of Drupal 9 and later, behind the Nuthatch of nuthatch.toml.

// Nuthatch says in X-Forwarded-For and X-Forwarded-Proto who asked, and how.
$settings['reverse_proxy'] = TRUE;
$settings['reverse_proxy_addresses'] = ['127.0.0.1'];

// Pages may be kept for a day; a change purges them before that.
$config['system.performance']['cache']['page']['max_age'] = 86400;
// Drupal's own page cache would keep them a second time.
$settings['cache']['bins']['page'] = 'cache.backend.null';

// Purges: with the modules purge, purge_queuer_url and purge_purger_http, and a purger "HTTP" that sends, for the type URL,
// the method PURGE to 127.0.0.1, port 8080, path [invalidation:expression], with the site's name in the field Host.
// A module of your own may delete an item instead: $memcached->delete('page:http://www.example.org/node/1').
