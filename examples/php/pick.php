<?php
// Sends requests to the endpoints that lbd picks. LBD is the URL of lbd (default http://localhost:8080).
//	php pick.php CLUSTER            one pick with a lease, then one of the batch, as in a request of php-fpm
//	php pick.php CLUSTER follow     updates the batch in a file, for all requests on this machine: run it as a service
$lbd = getenv('LBD') ?: 'http://localhost:8080';
$cluster = rawurlencode($argv[1]);
$batch = sys_get_temp_dir() . "/lbd-$cluster.json";

function call(string $method, string $url, ?array $body = null): ?array {
    $http = ['method' => $method, 'timeout' => 60, 'header' => 'Content-Type: application/json'];
    $http['content'] = $body === null ? '' : json_encode($body);
    $answer = @file_get_contents($url, false, stream_context_create(['http' => $http]));
    return $answer === false ? null : json_decode($answer, true); // null: lbd is unreachable or refuses
}

if (($argv[2] ?? '') === 'follow') { // the cheap way: 100 picks in one answer, again when the cluster changes
    for ($generation = 0;; ) {
        $state = call('GET', "$lbd/v1/clusters/$cluster?endpoints=false&index=$generation&wait=30s");
        $answer = $state === null ? null : call('GET', "$lbd/pick?cluster=$cluster&n=100");
        if ($answer === null) {
            sleep(1); // keep using the last batch
            continue;
        }
        $generation = $answer['generation'];
        $refused = array_sum($answer['dropped']) + $answer['circuit_broken'];
        $turns = array_merge(array_column($answer['picks'], 'address'), array_fill(0, $refused, null)); // null: drop
        file_put_contents($new = "$batch." . getmypid(), json_encode($turns));
        rename($new, $batch); // atomic for readers
    }
}

$pick = call('POST', "$lbd/pick?cluster=$cluster&ttl=30s") ?? exit("no pick\n"); // counts as in flight until done
echo "leased: {$pick['address']}\n"; // the request itself goes here
call('POST', "$lbd/v1/leases/{$pick['lease']['id']}/done", ['outcome' => 'success']);
if (is_file($batch)) {
    $turns = json_decode(file_get_contents($batch));
    echo 'batch: ', $turns[array_rand($turns)] ?? 'dropped', "\n";
}
