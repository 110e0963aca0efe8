<?php

declare(strict_types=1);

require __DIR__ . '/../tests/autoload.php';
require __DIR__ . '/Runner.php';

pcntl_async_signals(true);
pcntl_signal(SIGTERM, static fn () => exit(0));

$runner = new Lbd\Conformance\Runner(require __DIR__ . '/adapters.php');
while (true) {
    $ready = [STDIN];
    $none = null;
    if (!@stream_select($ready, $none, $none, 0, 20_000)) {
        $runner->idle();
        continue;
    }
    $line = fgets(STDIN);
    if ($line === false) {
        break;
    }
    $command = json_decode($line, true, 16, JSON_THROW_ON_ERROR);
    $do = $command['do'];
    echo json_encode($runner->$do($command), JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
    if ($do === 'close') {
        break;
    }
}
