<?php

declare(strict_types=1);

namespace Lbd;

/** A try that has ended, for the hook onAttempt. */
final class Tried
{
    /**
     * @internal
     * @param Choice $choice what lbd has chosen; its attempt is the number of the try
     * @param string $outcome success, error, cancelled or unreachable
     * @param float $duration seconds until status and headers were there, or the try had failed
     * @param string $method of the request; '' if an adapter did not say
     * @param string $url that of the program, which may have a query
     * @param ?int $status null if there was no answer
     * @param ?\Throwable $error that of the HTTP library
     */
    public function __construct(
        public readonly Choice $choice,
        public readonly string $outcome,
        public readonly float $duration,
        public readonly string $method,
        public readonly string $url,
        public readonly ?int $status,
        public readonly ?\Throwable $error,
    ) {
    }
}
