<?php

// A small site behind a page cache: /wiki/NAME shows a page that the cache may keep for long, /own/NAME one that the site itself puts
// into the cache, /edit?page=NAME changes both and deletes them from the cache as items. Beside this file lies one that says on which
// port the cache speaks memcached, and one with the form in which the site stores pages: raw (their bodies, as gzip) or srcache (whole
// responses).

$url = parse_url($_SERVER['REQUEST_URI']);
$revision = fn ($name) => (int) @file_get_contents(__DIR__ . '/revision-' . md5($name));

function connected()
{
    $cache = new Memcached();
    // Neither nginx nor the page cache reads what the extension compresses.
    $cache->setOption(Memcached::OPT_COMPRESSION, false);
    $cache->addServer('127.0.0.1', (int) file_get_contents(__DIR__ . '/memcached'));
    return $cache;
}

function page_key($path)
{
    return "page:http://{$_SERVER['HTTP_HOST']}$path";
}

if (preg_match('~^/wiki/(\w+)$~', $url['path'], $found)) {
    header('Cache-Control: s-maxage=86400');
    header('Content-Type: text/plain');
    echo $found[1], ', revision ', $revision($found[1]);
    return;
}
if (preg_match('~^/own/(\w+)$~', $url['path'], $found)) {
    $text = "$found[1], revision {$revision($found[1])}";
    $cache = connected();
    if (file_get_contents(__DIR__ . '/form') === 'raw') {
        // The extension has its user's flags in the upper half of an item's: 1 is 65536 to whoever reads it.
        $cache->setOption(Memcached::OPT_USER_FLAGS, 1);
        $is_stored = $cache->set(page_key($url['path']), gzencode($text), 300);
    } else {
        $head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Stored-By: site\r\n\r\n";
        $is_stored = $cache->set(page_key($url['path']), $head . $text, 300);
    }
    // The cache is not to store it as well.
    header('Cache-Control: no-store');
    header('Content-Type: text/plain');
    echo $is_stored ? $text : $cache->getResultMessage();
    return;
}
if ($url['path'] === '/edit' && $_SERVER['REQUEST_METHOD'] === 'POST') {
    parse_str($url['query'], $query);
    $name = $query['page'];
    file_put_contents(__DIR__ . '/revision-' . md5($name), $revision($name) + 1);
    $deleted = array_filter(connected()->deleteMulti([page_key("/wiki/$name"), page_key("/own/$name")]), fn ($done) => $done === true);
    echo 'deleted ', count($deleted);
    return;
}
http_response_code(404);
