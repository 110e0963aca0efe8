<?php

declare(strict_types=1);

/** Checks which batches are kept for what requests ask: php asked.php SHARED, where SHARED is 1 with APCu. */

use Lbd\Internal\Asked;
use Lbd\Internal\Batch;
use Lbd\Internal\SharedAsked;
use Lbd\Internal\SharedMemory;

require __DIR__ . '/autoload.php';

$shared = $argv[1] === '1';
$memory = new SharedMemory('test:');
$new = static fn (): Asked => $shared ? new SharedAsked($memory, 'orders', 60.0) : new Asked();
$asked = $new();
$batch = static fn (string $query, int $generation): Batch => Batch::ofAnswer('orders', ['generation' => $generation, 'picks' => [['address' => '10.0.0.1:80']]], $query);
$asked->put($batch('&hash=first', 1));
for ($i = 0; $i < 5000; $i++) {
    $asked->put($batch("&hash=$i", 1));
    assert($asked->get('&hash=first')?->query === '&hash=first', "it is used: $i");
}
assert(!$shared || $new()->get('&hash=first') !== null, 'another process knows it');
$kept = count(array_filter(range(0, 4999), static fn (int $i): bool => $asked->get("&hash=$i") !== null));
assert($kept >= 500 && $kept <= 2000, "kept: $kept");
$left = static fn (): int => count(array_filter(apcu_cache_info()['cache_list'], static fn (array $entry): bool => str_starts_with($entry['info'], "test:asked:orders\0")));
assert(!$shared || $left() <= 1000, "entries: {$left()}");

// Long ones take the place of more.
$asked->put($batch('&hash=first', 1));
$long = static fn (int $i): string => "&path=$i" . str_repeat('x', 24 << 10);
for ($i = 0; $i < 1000; $i++) {
    $asked->put($batch($long($i), 1));
    assert($asked->get('&hash=first') !== null, "it is used: $i");
}
$kept = count(array_filter(range(0, 999), static fn (int $i): bool => $asked->get($long($i)) !== null));
assert($kept >= 70 && $kept <= 175, "long: $kept");
assert(!$shared || $left() <= 1000, "entries: {$left()}");

// All are of one generation.
$asked->put($batch('&hash=late', 0));
assert($asked->get('&hash=late') === null);
$asked->put($batch('&hash=new', 2));
assert($asked->get('&hash=first') === null && $asked->get('&hash=new')?->generation === 2);
$asked->put(Batch::ofRefusal(new Lbd\Exception\Dropped('all of it', 'orders', 'dropped'), '&hash=dropped'));
assert($asked->get('&hash=dropped') !== null && $asked->get('&hash=new') !== null);
$asked->follow(null);
assert($asked->get('&hash=new') !== null);
$asked->follow(1); // lbd has restarted
assert($asked->get('&hash=new') === null);
$asked->put($batch('&hash=new', 1));
assert($asked->get('&hash=new')?->generation === 1);
echo "done\n";
