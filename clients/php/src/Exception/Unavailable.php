<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** lbd has no endpoint, or is unreachable and the last batch is too old. */
final class Unavailable extends LbdException
{
}
