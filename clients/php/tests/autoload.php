<?php

declare(strict_types=1);

// Debian's Guzzle, which is no dependency of this package, and this package.
require_once 'GuzzleHttp/autoload.php';

spl_autoload_register(static function (string $class): void {
    foreach (['Lbd\\Tests\\' => __DIR__ . '/', 'Lbd\\' => __DIR__ . '/../src/'] as $prefix => $directory) {
        if (str_starts_with($class, $prefix)) {
            $file = $directory . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
});
