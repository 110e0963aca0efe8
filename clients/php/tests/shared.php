<?php

declare(strict_types=1);

/** Prints what is left after processes have changed the same entries of APCu at the same time. */

use Lbd\Internal\Api;
use Lbd\Internal\Count;
use Lbd\Internal\Deadline;
use Lbd\Internal\SharedAsides;
use Lbd\Internal\SharedBudget;
use Lbd\Internal\SharedCounts;
use Lbd\Internal\SharedMemory;

require __DIR__ . '/autoload.php';

const ADDRESS = '10.0.0.1:80';

$memory = new SharedMemory('test:');
$together = static function (\Closure ...$functions): void {
    $children = [];
    foreach ($functions as $function) {
        $children[] = $pid = pcntl_fork();
        if ($pid === 0) {
            $function();
            exit(0);
        }
    }
    foreach ($children as $pid) {
        pcntl_waitpid($pid, $status);
    }
};

$budget = new SharedBudget($memory, 'orders', 100.0);
$together(...array_fill(0, 4, static function () use ($budget, $memory): void {
    for ($i = 0; $i < 5000; $i++) {
        $memory->add('refused', (int) !$budget->failed());
        for ($j = 0; $j < 11; $j++) {
            $budget->succeeded();
        }
    }
}));
$missing = (fn (): mixed => $this->memory->get($this->name))->call($budget);
$busy = new SharedBudget($memory, 'busy', 10.0);
$permitted = array_map(static fn (int $n): bool => $busy->failed($n), [...array_fill(0, 10, 1000), 20, 20, 1000]);
$permitted[] = $memory->get('missing:10:busy'); // 10 tokens of the small budget, and one
echo 'busy: ', json_encode($permitted), "\n";
echo 'budget: ', $memory->get('refused'), ' refused, ', $missing === 0 ? 'none' : var_export($missing, true), " missing\n";

$counts = new SharedCounts(new Api('unix:/x', '', '', ''), $memory, 5.0);
$add = static function (int $requests) use ($counts): void {
    $count = new Count(Deadline::now());
    $count->requests = $requests;
    (fn () => $this->addAll('orders', [ADDRESS => $count]))->call($counts);
};
$take = static fn (): int => (fn (): int => ($this->take('orders')[ADDRESS] ?? new Count(0.0))->requests)->call($counts);
$counts->know('orders', [ADDRESS]);
$add(1);
$memory->set('known:orders', [ADDRESS => Deadline::now() - 3600]);
$counts->know('orders', ['10.0.0.2:80']); // forgets others that nothing is counted of
$kept = $take();
$counts->know('orders', [ADDRESS]);
$loop = static fn (\Closure $function): \Closure => static function () use ($function): void {
    $end = new Deadline(0.5);
    while (!$end->passed()) {
        $function();
    }
};
$entry = "count:orders\0" . ADDRESS . "\0requests";
$check = static function () use ($take, $memory, $entry): void {
    $take();
    $memory->add('negative', (int) ($memory->get($entry) < 0)); // it would lack what is added next
};
$deletes = static function () use ($add, $memory, $entry): void {
    $add(1);
    $memory->delete($entry);
};
$together($loop($deletes), $loop($check));
echo "counts: $kept, ", $memory->get('negative'), " negative\n";

$asides = new SharedAsides($memory, 'orders');
$asides->failed(ADDRESS, false, 1);
$memory->set('aside:orders', [ADDRESS => ['until' => Deadline::now() + 0.1] + $memory->get('aside:orders')[ADDRESS]]);
$together(...array_fill(0, 8, static function () use ($asides, $memory): void {
    $end = new Deadline(0.3);
    while (!$end->passed()) {
        $memory->add('trials', (int) !$asides->avoids(ADDRESS));
    }
}));
echo 'trials: ', $memory->get('trials'), "\n";
