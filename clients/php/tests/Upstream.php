<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** An HTTP server on loopback, in a process of its own (upstream.php). */
final class Upstream
{
    public readonly string $address;
    private readonly Process $process;

    public function __construct(string $behavior = '200', string ...$certificate)
    {
        $this->process = new Process([PHP_BINARY, __DIR__ . '/upstream.php', $behavior, ...$certificate]);
        $this->address = trim((string) fgets($this->process->stdout));
    }

    /** @return list<array{method: string, path: string, host: string, body: string, connection: int}> */
    public function requests(): array
    {
        $context = stream_context_create(['http' => ['timeout' => 10, 'protocol_version' => '1.1']]);
        return json_decode((string) file_get_contents("http://$this->address/requests", false, $context), true);
    }

    /** @return list<string> */
    public static function addresses(self ...$upstreams): array
    {
        return array_map(static fn (self $upstream): string => $upstream->address, array_values($upstreams));
    }
}
