<?php

declare(strict_types=1);

namespace Lbd\Exception;

// Failure is what all exceptions of this package are. It is also the interface that callers of the installed HTTP
// library catch: GuzzleException, or ClientExceptionInterface of PSR-18, or only Throwable.
if (interface_exists(\GuzzleHttp\Exception\GuzzleException::class)) {
    interface Failure extends \GuzzleHttp\Exception\GuzzleException
    {
    }
} elseif (interface_exists(\Psr\Http\Client\ClientExceptionInterface::class)) {
    interface Failure extends \Psr\Http\Client\ClientExceptionInterface
    {
    }
} else {
    interface Failure extends \Throwable
    {
    }
}
