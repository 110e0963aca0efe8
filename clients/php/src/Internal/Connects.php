<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** How long the last successful connects of a cluster took, in this process and in those that share the memory. */
final class Connects
{
    /** Connects of a request that have less time, at most. */
    public const HURRIED = 3;

    /** Seconds that they have, at least. */
    private const MIN = 0.25;

    private const KEPT = 16;

    /** Seconds below which there was a connection before. */
    private const REUSED = 0.001;

    /** Seconds for which other processes know of a connect. */
    private const SHARED_FOR = 60;

    /** @var list<float> */
    private array $took = [];

    public function __construct(private readonly string $cluster, private readonly ?SharedMemory $memory)
    {
    }

    public function add(float $took): void
    {
        if ($took < self::REUSED) {
            return;
        }
        $this->took = array_slice([...$this->took, $took], -self::KEPT);
        if (3 * $took > self::MIN && $took > $this->shared()) {
            $this->memory?->set("connect:$this->cluster", $took, self::SHARED_FOR);
        }
    }

    /** Seconds that a connect has while there are other endpoints. */
    public function limit(): float
    {
        return max(self::MIN, 3 * max(0.0, $this->shared(), ...$this->took));
    }

    private function shared(): float
    {
        $took = $this->memory?->get("connect:$this->cluster");
        return is_float($took) ? $took : 0.0;
    }
}
