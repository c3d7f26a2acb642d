<?php

// For LocalSettings.php of MediaWiki 1.35 and later, behind the Nuthatch of nuthatch.toml.

// Pages say s-maxage, so that they are kept, and are purged when they change.
$wgUseCdn = true;
$wgCdnMaxAge = 86400;
// PURGE goes through these as through a proxy; what they forward in X-Forwarded-For is believed.
$wgCdnServers = [ '127.0.0.1:8080' ];
// Purges are for the URLs that readers use. Over http, also where readers use https: Nuthatch forgets both.
$wgInternalServer = 'http://wiki.example.org';

// Instead of PURGE: datagrams, also to several Nuthatches at a time by multicast. Then leave $wgCdnServers empty and list them
// in $wgCdnServersNoPurge.
// $wgHTCPRouting = [ '' => [ 'host' => '127.0.0.1', 'port' => 4827 ] ];
