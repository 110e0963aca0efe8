<?php

declare(strict_types=1);

/** Prints what SharedCounts knows of clusters before and after their last batches are old. It needs APCu. */

use Lbd\Internal\Api;
use Lbd\Internal\Count;
use Lbd\Internal\Deadline;
use Lbd\Internal\SharedCounts;
use Lbd\Internal\SharedMemory;

require __DIR__ . '/autoload.php';

$memory = new SharedMemory('test:');
$counts = new SharedCounts(new Api('unix:/x', '', '', ''), $memory, 5.0);
$batch = ['10.0.0.1:80'];
for ($i = 0; $i < SharedCounts::CLUSTERS; $i++) {
    $counts->know("orders$i", $batch);
}
$counts->know('new', $batch);
$clusters = $memory->get('clusters');
echo 'too many: ', count($clusters) + (isset($clusters['new']) ? 1 : 0), "\n";

$count = new Count(Deadline::now());
$count->requests = 7;
(fn () => $this->addAll('orders1', ['10.0.0.1:80' => $count]))->call($counts);
$memory->set('clusters', ['orders0' => Deadline::now()] + array_fill_keys(array_keys($clusters), Deadline::now() - 3600));
$counts->know('new', $batch);
$left = $memory->get('clusters');
$found = $memory->integers(["count:orders1\0" . "10.0.0.1:80\0requests"]);
echo 'forgotten: ', isset($left['new'], $left['orders0']) ? count($left) : 0, ' ', count($found), "\n";
