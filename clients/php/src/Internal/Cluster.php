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

    /** Whether nothing is lost if the cluster is forgotten: there were no requests for long, or it has no batch. */
    public function idle(): bool
    {
        return $this->source === null || ($this->source instanceof FollowedBatch && $this->source->idle());
    }
}
