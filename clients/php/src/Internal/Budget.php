<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** Tokens for retries, as in gRFC A6: those that are missing. */
class Budget
{
    protected const SUCCESS = 0.1;

    private float $missing = 0.0;

    public function __construct(private readonly float $max)
    {
    }

    /** The tokens of a full budget, with batches of n picks. */
    protected function size(int $n): float
    {
        return $this->max * max(1.0, $n / Batch::FIRST);
    }

    /** Takes a token, and says whether a retry is permitted, with batches of n picks. */
    public function failed(int $n = 0): bool
    {
        $size = $this->size($n);
        $this->missing = min($size, $this->missing + 1);
        return $this->missing < $size / 2;
    }

    public function succeeded(): void
    {
        $this->missing = max(0.0, $this->missing - self::SUCCESS);
    }
}
