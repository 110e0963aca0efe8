<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\Unavailable;

/** A call failed: lbd is unreachable, or what came is not a complete answer. */
final class Unreachable extends \RuntimeException
{
    /** The error of a request to a cluster. */
    public function of(string $cluster): Unavailable
    {
        return new Unavailable("cluster $cluster: lbd is unreachable: {$this->getMessage()}", $cluster, previous: $this);
    }
}
