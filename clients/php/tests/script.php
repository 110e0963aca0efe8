<?php

declare(strict_types=1);

// A program of ProcessTest: php script.php WHAT LBD

use Lbd\Client;
use Lbd\Exception\ConnectionFailed;

require __DIR__ . '/autoload.php';

[, $what, $lbd] = $argv;
$settings = ['lbd' => $lbd, 'mode' => str_starts_with($what, 'lease') ? 'lease' : 'batch'];
$client = new Client(...$settings);
$send = static function (int $n) use ($client): void {
    for ($i = 0; $i < $n; $i++) {
        $client->request('GET', 'http://orders.lbd/');
    }
};
$fork = static function (callable $run): void {
    $pid = pcntl_fork();
    if ($pid === 0) {
        $run();
        exit(0);
    }
    pcntl_waitpid($pid, $status);
};

switch ($what) {
    case 'end': // without close
        $send(5);
        break;
    case 'out of scope':
        $send(5);
        unset($client, $send);
        break;
    case 'fork':
        $send(5);
        for ($i = 0; $i < 3; $i++) {
            $fork(static fn () => $send(10));
            $fork(static fn () => null); // a child that does not use it
        }
        $send(5);
        break;
    case 'lease fork':
        $held = $client->call('orders', 20.0, false)->first();
        $fork(static fn () => $send(4));
        fwrite(STDOUT, "forked\n");
        fgets(STDIN);
        $held->answered(200);
        $held->finish();
        break;
    case 'lease SIGTERM':
        pcntl_async_signals(true);
        pcntl_signal(SIGTERM, static fn () => exit(0));
        fwrite(STDOUT, "ready\n");
        $client->request('GET', 'http://orders.lbd/hang', timeout: 30.0);
        break;
    case 'lease exception':
        ini_set('zend.exception_ignore_args', '0');
        pcntl_async_signals(true);
        pcntl_signal(SIGTERM, static fn () => throw new Exception('stop'));
        fwrite(STDOUT, "ready\n");
        try {
            $client->request('GET', 'http://orders.lbd/hang', timeout: 30.0);
        } catch (Exception $kept) { // with the arguments in its trace
        }
        $client->tick(0.3);
        fwrite(STDOUT, "caught\n");
        fgets(STDIN);
        break;
    case 'lease renew':
        $client->background->leases->hold($client->api->call('POST', '/v1/pick?cluster=orders&ttl=2s')['lease']['id'], 2.0, new Lbd\Internal\Deadline(null));
        $client->tick(2.5);
        fwrite(STDOUT, "renewed\n");
        do {
            $client->tick(0.1);
            $ready = [STDIN];
        } while (!stream_select($ready, $none, $none, 0));
        break;
    case 'shortage':
        $send(1);
        $client->tick(0.1);
        posix_setrlimit(POSIX_RLIMIT_NOFILE, 64, 64);
        $files = [];
        while ($file = @fopen('/dev/null', 'r')) {
            $files[] = $file;
        }
        try {
            $client->request('POST', 'http://orders.lbd/'); // needs a new connection
        } catch (ConnectionFailed) {
            echo "no descriptors\n";
        }
        $files = [];
        break;
    case 'tick':
        $send(3);
        fwrite(STDOUT, "sent\n");
        $client->tick(30.0);
        break;
    default:
        throw new ValueError("what: '$what' is unknown");
}
