<?php

declare(strict_types=1);

namespace Lbd;

/** The response to Client::request. */
final class Response
{
    /**
     * @param array<string, list<string>> $headers by name in lower case
     * @param string $body '' if it was written to a sink
     */
    public function __construct(
        public readonly int $status,
        public readonly array $headers,
        public readonly string $body,
    ) {
    }

    /** The first value of a header; null if there is none. */
    public function header(string $name): ?string
    {
        return $this->headers[strtolower($name)][0] ?? null;
    }
}
