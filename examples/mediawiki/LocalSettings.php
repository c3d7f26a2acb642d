<?php

// For LocalSettings.php of MediaWiki 1.35 and later, with PHP's extension memcached.

// One Nuthatch on this host with a pool for each. Weights of servers are its business: see nuthatch.toml.
foreach ( [ 'objects' => 11211, 'sessions' => 11212, 'parser' => 11213 ] as $name => $port ) {
	$wgObjectCaches["nuthatch-$name"] = [
		'class' => 'MemcachedPeclBagOStuff',
		'servers' => [ "127.0.0.1:$port" ],
		'serializer' => 'php',
		'persistent' => false,
	];
}
$wgMainCacheType = 'nuthatch-objects';
$wgMessageCacheType = 'nuthatch-objects';
$wgSessionCacheType = 'nuthatch-sessions';
$wgParserCacheType = 'nuthatch-parser';
