<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\TimedOut;
use Lbd\Exception\Unavailable;

/** Errors of curl: whom they are due to. */
final class Errors
{
    /** No connection, or one that ended. Before the status line, the request may be sent elsewhere. */
    private const CONNECTION = [5, 6, 7, 35, 52, 55, 56, 60];

    /** Mistakes and shortages of the caller: no endpoint is to blame. */
    private const LOCAL = [1, 2, 3, 4, 23, 26, 27, 41, 42, 43, 53, 54, 58, 59, 61, 66, 77];

    /** No connection. */
    private const CONNECT = [5, 6, 7, 35, 60];

    private const COULDNT_RESOLVE = 6;
    private const COULDNT_CONNECT = 7;

    /** Loads the classes of errors: a process without descriptors cannot. */
    public static function load(): void
    {
        foreach ([TimedOut::class, Unavailable::class, Unreachable::class] as $class) {
            class_exists($class);
        }
    }

    public static function isConnection(int $error): bool
    {
        return in_array($error, self::CONNECTION, true);
    }

    /** Whether there was no connection. $size is what curl has sent of the request, in bytes. */
    public static function isUnsent(int $error, int $size): bool
    {
        return in_array($error, self::CONNECT, true)
            || ($size === 0 && ($error === CURLE_OPERATION_TIMEDOUT || self::isConnection($error)));
    }

    public static function isLocal(int $error): bool
    {
        return in_array($error, self::LOCAL, true)
            || (($error === self::COULDNT_CONNECT || $error === self::COULDNT_RESOLVE) && self::shortage());
    }

    /** Whether this process has no descriptors left, which curl does not tell from a refused connection. */
    private static function shortage(): bool
    {
        $file = @fopen('/dev/null', 'r');
        return $file === false && @filetype('/dev/null') !== false;
    }
}
