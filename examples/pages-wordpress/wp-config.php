<?php

// For wp-config.php, above "That's all, stop editing", behind the Nuthatch of nuthatch.toml.

// Readers may use https to whatever stands before Nuthatch; it says so in X-Forwarded-Proto.
if (($_SERVER['HTTP_X_FORWARDED_PROTO'] ?? '') === 'https') {
    $_SERVER['HTTPS'] = 'on';
}

// Purges: the plugin Proxy Cache Purge sends PURGE for each URL that a change touches, here.
define('VHP_VARNISH_IP', '127.0.0.1:8080');
