<?php

declare(strict_types=1);

// In your project, this is Composer's vendor/autoload.php, after: composer require lbd/client.
spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Lbd\\')) {
        require __DIR__ . '/../../../clients/php/src/' . strtr(substr($class, 4), '\\', '/') . '.php';
    }
});
