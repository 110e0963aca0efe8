<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** The time until the next try after a failed call. */
final class Pause
{
    private const FIRST = 0.1;
    public const MAX = 5.0;
    private const RETRY_AFTER_MAX = 60.0;

    /** Seconds after a number of failures in succession, and at least what lbd asked for. */
    public static function after(int $failures, float $retryAfter = 0.0): float
    {
        $pause = min(self::MAX, self::FIRST * 2 ** min(10, max(0, $failures - 1)));
        return max($pause * (0.8 + 0.4 * mt_rand() / mt_getrandmax()), min(self::RETRY_AFTER_MAX, $retryAfter));
    }
}
