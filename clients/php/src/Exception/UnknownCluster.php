<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** lbd does not know the cluster. */
final class UnknownCluster extends LbdException
{
}
