<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;

/** Where the addresses of one cluster come from, in the mode batch. */
interface Source
{
    /**
     * The next address. It waits only if there is no batch that may be used.
     *
     * @throws LbdException if the next element is a refusal, or there is no batch in time
     */
    public function take(Deadline $deadline): string;

    /**
     * The next address that is not in tried, or null if there is no other.
     *
     * @param list<string> $tried
     */
    public function other(array $tried): ?string;
}
