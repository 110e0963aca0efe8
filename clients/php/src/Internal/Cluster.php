<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** What a client knows of one cluster. source is null in the modes pick and lease. */
final class Cluster
{
    /** Addresses that a request has tried, or that lbd excludes, at most. */
    public const TRIED_MAX = 100;

    public readonly Counts $counts;

    /** When lbd gave it an endpoint last, in the modes pick and lease. */
    public float $picked = -INF;

    /** Whether it is a target, whose routes choose the cluster. */
    public readonly bool $target;

    public function __construct(
        public readonly string $name,
        public readonly ?Source $source,
        public readonly Budget $budget,
        public readonly Asides $asides,
        public readonly Connects $connects,
    ) {
        $this->counts = new Counts();
        $this->target = Host::target($name) !== null;
    }

    /** Takes a token of the budget, and says whether a retry is permitted. */
    public function permitsRetry(): bool
    {
        return $this->budget->failed(count($this->source?->batch()->elements ?? []));
    }

    /** May set an address aside: a try was not sent, or got no answer. */
    public function failed(string $address, bool $sent): void
    {
        $batch = $this->source?->batch();
        $this->asides->failed($address, $sent, $batch?->query !== '' ? self::TRIED_MAX : intdiv(count($batch->addresses()), 2));
    }

    /** Whether nothing is lost if the cluster is forgotten. */
    public function idle(): bool
    {
        return $this->source?->batch() === null && $this->counts->isEmpty();
    }
}
