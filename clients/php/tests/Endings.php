<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** How a script ends. */
final class Endings
{
    public static function leave(): never
    {
        exit('bye');
    }

    public static function undefined(): void
    {
        /** @phpstan-ignore-next-line it is the fatal error */
        \Lbd\Tests\no_such_function();
    }

    public static function loop(): never
    {
        while (true) {
            hrtime(true);
        }
    }
}
