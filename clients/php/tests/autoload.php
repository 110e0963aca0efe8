<?php

declare(strict_types=1);

// Debian's Guzzle, which is no dependency of this package; the package, as it is here or as LBD_CLIENT loads it; and
// the tests.
require_once 'GuzzleHttp/autoload.php';
require_once getenv('LBD_CLIENT') ?: __DIR__ . '/../vendor/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Lbd\\Tests\\')) {
        require __DIR__ . '/' . substr($class, strlen('Lbd\\Tests\\')) . '.php';
    }
});
