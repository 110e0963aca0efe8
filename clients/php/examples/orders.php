<?php

declare(strict_types=1);

// Shows an order: a page of php-fpm, or php orders.php NUMBER. The environment variable LBD is the address of lbd.

foreach ([__DIR__ . '/../vendor/autoload.php', __DIR__ . '/../../../autoload.php'] as $autoload) {
    if (is_file($autoload)) {
        require $autoload;
    }
}

$client = new Lbd\Client(timeout: 2.0);
$number = (int) ($_GET['number'] ?? $argv[1] ?? 7);
try {
    $response = $client->request('GET', "http://orders.lbd/items/$number", headers: ['Accept' => 'text/plain']);
    [$status, $text] = [$response->status, $response->body];
} catch (Lbd\Exception\Dropped | Lbd\Exception\CircuitBroken) {
    [$status, $text] = [503, 'Too many people want to see orders. Please come back later.'];
} catch (Lbd\Exception\Failure $error) {
    error_log($error->getMessage());
    [$status, $text] = [502, 'Orders cannot be shown now.'];
}
http_response_code($status);
echo $text, "\n";
