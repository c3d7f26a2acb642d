<?php

// A small site behind a page cache: /wiki/NAME shows a page that may be kept for long, /edit?page=NAME changes one and deletes it from
// the cache as an item. Beside this file lies one that says on which port the cache speaks memcached.

$url = parse_url($_SERVER['REQUEST_URI']);
$revision = fn ($name) => (int) @file_get_contents(__DIR__ . '/revision-' . md5($name));

if (preg_match('~^/wiki/(\w+)$~', $url['path'], $found)) {
    header('Cache-Control: s-maxage=86400');
    header('Content-Type: text/plain');
    echo $found[1], ', revision ', $revision($found[1]);
    return;
}
if ($url['path'] === '/edit' && $_SERVER['REQUEST_METHOD'] === 'POST') {
    parse_str($url['query'], $query);
    $name = $query['page'];
    file_put_contents(__DIR__ . '/revision-' . md5($name), $revision($name) + 1);
    $cache = new Memcached();
    $cache->addServer('127.0.0.1', (int) file_get_contents(__DIR__ . '/memcached'));
    echo $cache->delete("page:http://{$_SERVER['HTTP_HOST']}/wiki/$name") ? 'deleted' : $cache->getResultMessage();
    return;
}
http_response_code(404);
