<?php
// What the PHP clients' tests share: where the server is, comparing, and letting time pass. See clients/README.md for the variables.

// PECL Memcache itself triggers a deprecation of PHP 8.2.
error_reporting(E_ALL & ~E_DEPRECATED);
ini_set('memory_limit', '256M');

const EVERY_BYTE_AND_MORE = "\r\nEND\r\n\0";
define('SERVER', getenv('SERVER'));
define('SERVERS', array_map(fn($s) => explode(':', $s), explode(' ', getenv('SERVERS'))));
define('IS_UNIX', SERVER[0] === '/');
define('HOST', IS_UNIX ? SERVER : explode(':', SERVER)[0]);
define('PORT', IS_UNIX ? 0 : (int) explode(':', SERVER)[1]);
define('EVERY_BYTE', implode('', array_map('chr', range(0, 255))) . EVERY_BYTE_AND_MORE);
define('LARGE', str_repeat('0123456789abcdef', intdiv(900 * 1024, 16)));
define('TOO_LARGE', random_bytes(2 * 1024 * 1024));

$checks = 0;

function same($got, $expected, string $what): void {
    global $checks;
    $checks++;
    if ($got !== $expected) {
        $short = fn($v) => substr(var_export($v, true), 0, 300);
        fwrite(STDOUT, "$what: expected {$short($expected)} and got {$short($got)}\n");
        exit(1);
    }
}

function pass_seconds(int $seconds): void {
    if (getenv('CLOCK') !== 'debugtime') {
        sleep($seconds + 1);
        return;
    }
    $control = stream_socket_client(IS_UNIX ? 'unix://' . SERVER : 'tcp://' . SERVER, $code, $error, 20);
    fwrite($control, 'debugtime ' . ($seconds + 1) . "\r\n");
    same(fgets($control), "OK\r\n", 'debugtime');
}

function done(): void {
    global $checks;
    echo "ok $checks\n";
}
