<?php

declare(strict_types=1);

namespace Lbd;

/** What a program asks of lbd for one request, and what lbd has chosen. */
final class Ask
{
    /** What lbd has chosen for the last try; null if there was none. */
    public ?Choice $choice = null;

    /**
     * @param string $hash the hash key, instead of that of the setting hosts
     * @param string $path what the routes of a target match. Default: the path of the request
     * @param ?array<string, string|list<string>> $headers what they match. Default: the headers of the request that the
     *     setting hosts names
     */
    public function __construct(
        public readonly string $hash = '',
        public readonly string $path = '',
        public readonly ?array $headers = null,
    ) {
    }
}
