<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** What a client knows of one cluster. source is null in the modes pick and lease. */
final class Cluster
{
    public readonly Counts $counts;

    public function __construct(public readonly string $name, public readonly ?Source $source, public readonly Budget $budget)
    {
        $this->counts = new Counts();
    }
}
