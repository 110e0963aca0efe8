<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Client;

/** What clients do at the end of a script, also after exit and fatal errors. */
final class Shutdown
{
    /** Seconds for all clients together. */
    private const TIMEOUT = 1.0;

    /** @var ?array<int, \WeakReference<Client>> null until there is a client */
    private static ?array $clients = null;

    /** @var list<Client> */
    private static array $kept = [];

    /** @param bool $keep whether the client lives until the end of the script, even if nobody uses it any more */
    public static function register(Client $client, bool $keep): void
    {
        if (self::$clients === null) {
            self::$clients = [];
            // Those that the program registers later run before, because they may still write to the response.
            register_shutdown_function(static fn () => register_shutdown_function(self::run(...)));
        }
        self::$clients = array_filter(self::$clients, static fn (\WeakReference $reference): bool => $reference->get() !== null);
        self::$clients[] = \WeakReference::create($client);
        if ($keep) {
            self::$kept[] = $client;
        }
    }

    private static function run(): void
    {
        $deadline = new Deadline(self::TIMEOUT);
        foreach (self::$clients ?? [] as $reference) {
            $reference->get()?->end($deadline->atMost(self::TIMEOUT));
        }
    }
}
