<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;

/** Where the addresses of one cluster come from, in the mode batch. */
interface Source
{
    /**
     * The next address that is not set aside. It waits only if there is no batch that may be used.
     *
     * @throws LbdException if the next element is a refusal, or there is no batch in time
     */
    public function take(Deadline $deadline): string;

    /** The batch that take used, if there is one. */
    public function batch(): ?Batch;
}
