<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** A point in time, of the monotonic clock. */
final class Deadline
{
    private readonly ?float $end;

    /** @param ?float $seconds from now; null for no deadline */
    public function __construct(?float $seconds)
    {
        $this->end = $seconds === null ? null : self::now() + $seconds;
    }

    /** The time in seconds. It is the same in all processes of a machine. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    /** The seconds left; null without a deadline. */
    public function left(): ?float
    {
        return $this->end === null ? null : max(0.0, $this->end - self::now());
    }

    /** The seconds left, but no more than these. */
    public function atMost(float $seconds): float
    {
        return min($seconds, $this->left() ?? $seconds);
    }

    public function passed(): bool
    {
        return $this->end !== null && self::now() >= $this->end;
    }
}
