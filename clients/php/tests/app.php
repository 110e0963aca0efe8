<?php

declare(strict_types=1);

// The script that php-fpm runs for the tests. Its input says what it does; its answer says what happened.

require __DIR__ . '/autoload.php';

$input = json_decode((string) file_get_contents('php://input'), true, 16, JSON_THROW_ON_ERROR);
$client = new Lbd\Client(...$input['settings']);
// The time that this process waited for a CPU, on a busy machine, is not in it.
$now = static fn (): int => hrtime(true) - (int) (explode(' ', (string) @file_get_contents('/proc/self/schedstat'))[1] ?? 0);
$began = $now();
$results = [];
$urls = $input['urls'] ?? array_fill(0, $input['n'] ?? 1, $input['url']);
$keys = $input['keys'] ?? [];
foreach ($urls as $i => $url) {
    try {
        $ask = isset($keys[$i]) ? new Lbd\Ask($keys[$i]) : null;
        $response = $client->request('GET', $url, timeout: 5.0, ask: $ask);
        $results[] = $response->status === 200 ? $response->body : (string) $response->status;
    } catch (Lbd\Exception\LbdException $error) {
        $results[] = (new ReflectionClass($error))->getShortName();
    }
}
$seconds = ($now() - $began) / 1e9;
if (isset($input['hold'])) { // a request that is in flight when the script ends
    $attempt = $client->call($input['hold'], 30.0, false)->first();
    $function = $input['end'];
    $function(...($input['arguments'] ?? []));
}
unset($client);
register_shutdown_function(static fn () => print('"}')); // the response is complete even so
$entries = array_filter(apcu_enabled() ? apcu_cache_info()['cache_list'] : [], static fn (array $entry): bool => str_contains($entry['info'], $input['entries'] ?? "\n"));
$output = ['results' => $results, 'seconds' => $seconds, 'pid' => getmypid(), 'ttls' => array_column($entries, 'ttl'), 'end' => ''];
echo substr(json_encode($output, JSON_THROW_ON_ERROR), 0, -2);
