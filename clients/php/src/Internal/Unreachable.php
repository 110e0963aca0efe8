<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** A call failed: lbd is unreachable, or what came is not a complete answer. */
final class Unreachable extends \RuntimeException
{
}
