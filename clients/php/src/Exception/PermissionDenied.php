<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** lbd rejected the token, or the token does not permit picks from this cluster. */
final class PermissionDenied extends LbdException
{
}
