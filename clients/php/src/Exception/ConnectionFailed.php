<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** A request of Client::request failed at the upstream: no connection, or it ended before the response did. */
class ConnectionFailed extends \RuntimeException implements Failure
{
}
