<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** A request of Client::request reached its deadline. */
final class TimedOut extends ConnectionFailed
{
}
