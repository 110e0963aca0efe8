<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** The circuit breaker of the cluster is full. Do not retry at once. */
final class CircuitBroken extends LbdException
{
}
