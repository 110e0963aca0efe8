<?php

declare(strict_types=1);

namespace Lbd;

/** What lbd has chosen for a try. A fallback has a cluster and an address only. */
final class Choice
{
    /**
     * @internal
     * @param string $cluster of a target, the one that its routes chose
     * @param string $address HOST:PORT
     * @param array{region: string, zone: string, sub_zone: string} $locality
     * @param int $attempt 1 for the first try of a request
     */
    public function __construct(
        public readonly string $cluster,
        public readonly string $address,
        public readonly string $hostname,
        public readonly array $locality,
        public readonly int $priority,
        public readonly int $attempt,
    ) {
    }
}
