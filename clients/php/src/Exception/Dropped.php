<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** The drop policy of the cluster rejected the request. Do not retry it: the operator wants less load. */
final class Dropped extends LbdException
{
}
