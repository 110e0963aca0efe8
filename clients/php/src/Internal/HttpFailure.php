<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Attempt;
use Psr\Http\Client\NetworkExceptionInterface;

/** Exceptions of Guzzle and of PSR-18 clients. */
final class HttpFailure
{
    /** Ends an attempt, and says whether the request may be sent elsewhere. */
    public static function end(Attempt $attempt, \Throwable $error): bool
    {
        $curl = self::curlError($error);
        if ($curl !== null && Errors::isLocal($curl)) {
            $attempt->finish();
            return false;
        }
        if ($curl !== null && Errors::isUnsent($curl, self::context($error)['request_size'] ?? 1)) {
            $attempt->unsent($curl === CURLE_OPERATION_TIMEDOUT, $error);
            return $curl !== CURLE_OPERATION_TIMEDOUT || $attempt->hasTime();
        }
        $network = $error instanceof NetworkExceptionInterface;
        if ($curl !== null || $network) {
            $attempt->failed($error);
        } else {
            $attempt->finish(); // the request is not valid, or its caller gave it up
        }
        if (method_exists($error, 'getResponse') && $error->getResponse() !== null) {
            return false;
        }
        if ($curl === CURLE_OPERATION_TIMEDOUT) {
            return $attempt->hasTime(); // curl sent it on an old connection, and had no time to connect again
        }
        return $curl === null ? $network : Errors::isConnection($curl);
    }

    /** @return array<mixed> what Guzzle knows of the transfer */
    private static function context(\Throwable $error): array
    {
        $context = method_exists($error, 'getHandlerContext') ? $error->getHandlerContext() : [];
        return is_array($context) ? $context : [];
    }

    private static function curlError(\Throwable $error): ?int
    {
        $code = self::context($error)['errno'] ?? null;
        return is_int($code) ? $code : null;
    }
}
