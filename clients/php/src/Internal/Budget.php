<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** Tokens for retries, as in gRFC A6. */
class Budget
{
    protected const SUCCESS = 0.1;

    private float $tokens;

    public function __construct(protected readonly float $max)
    {
        $this->tokens = $max;
    }

    /** Takes a token, and says whether a retry is permitted. */
    public function failed(): bool
    {
        $this->tokens = max(0.0, $this->tokens - 1);
        return $this->tokens > $this->max / 2;
    }

    public function succeeded(): void
    {
        $this->tokens = min($this->max, $this->tokens + self::SUCCESS);
    }
}
