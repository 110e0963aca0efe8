<?php

declare(strict_types=1);

namespace Lbd\Conformance;

use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\Pool;
use GuzzleHttp\Psr7\Request;
use Lbd\Client;
use Lbd\Exception;
use Psr\Http\Message\ResponseInterface;

/** Drives the client as the conformance tests say (clients/conformance/README.md). */
final class Runner
{
    private const OPTIONS = [
        'stale_for' => 'staleFor',
        'report_interval' => 'reportInterval',
        'max_age' => 'maxAge',
        'retries' => 'retries',
        'max_tokens' => 'maxTokens',
        'fallback' => 'fallback',
        'ttl' => 'ttl',
        'connect_timeout' => 'connectTimeout',
    ];
    private const ERRORS = [
        Exception\Dropped::class => 'dropped',
        Exception\CircuitBroken::class => 'circuit_broken',
        Exception\Unavailable::class => 'unavailable',
        Exception\UnknownCluster::class => 'unknown_cluster',
        Exception\PermissionDenied::class => 'permission_denied',
        Exception\TimedOut::class => 'timeout',
    ];

    private ?Client $client = null;
    private string $adapter = 'core';
    private \Closure $send;
    private \Closure $plain;

    /** @param array<string, \Closure(?Client): \Closure> $adapters */
    public function __construct(private readonly array $adapters)
    {
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public function open(array $command): array
    {
        $this->close();
        $this->adapter = $command['adapter'] ?? 'core';
        if (!isset($this->adapters[$this->adapter])) {
            return ['unsupported' => 'no such adapter'];
        }
        $options = $command['options'] ?? [];
        if ($unknown = array_diff_key($options, self::OPTIONS)) {
            return ['unsupported' => 'options ' . implode(', ', array_keys($unknown))];
        }
        $settings = ['lbd' => $command['lbd'], 'mode' => $command['mode'], 'hosts' => ['upstream.test' => $command['cluster']]];
        $settings += ['token' => $command['token'] ?? null, 'tokenFile' => $command['token_file'] ?? null];
        foreach ($options as $name => $value) {
            $settings[self::OPTIONS[$name]] = $value;
        }
        $this->client = new Client(...$settings);
        $this->connect();
        return ['ok' => true];
    }

    private function connect(): void
    {
        $this->send = ($this->adapters[$this->adapter])($this->client);
        $this->plain = ($this->adapters[$this->adapter])(null);
    }

    /**
     * The arguments of a request.
     *
     * @param array<string, mixed> $command
     * @return array{string, string, string, array<string, string>, ?float}
     */
    private static function arguments(array $command): array
    {
        return [
            $command['method'] ?? 'GET',
            $command['url'] ?? 'http://upstream.test' . ($command['path'] ?? '/'),
            $command['body'] ?? '',
            ($command['idempotent'] ?? false) ? ['Idempotency-Key' => '1'] : [],
            isset($command['timeout']) ? (float) $command['timeout'] : null,
        ];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public function request(array $command): array
    {
        $end = microtime(true) + ($command['timeout'] ?? 30.0);
        try {
            [$status, $body] = (isset($command['url']) ? $this->plain : $this->send)(...self::arguments($command));
            return ['status' => $status, 'body' => $body];
        } catch (\Throwable $error) {
            return ['error' => self::name($error, microtime(true) >= $end - 0.05), 'message' => $error->getMessage()];
        }
    }

    /** An error of curl has one code for the deadline and for the time to connect. */
    private static function name(\Throwable $error, bool $late = true): string
    {
        if ($late && $error instanceof ConnectException && ($error->getHandlerContext()['errno'] ?? 0) === CURLE_OPERATION_TIMEDOUT) {
            return 'timeout';
        }
        return self::ERRORS[$error::class]
            ?? ($error instanceof Exception\ConnectionFailed || $error instanceof GuzzleException ? 'connection' : 'other');
    }

    /**
     * PHP has no threads: Guzzle sends that many requests at the same time, with the others, that many processes do.
     *
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public function load(array $command): array
    {
        $began = microtime(true);
        $n = $command['n'];
        $threads = min($n, $command['threads'] ?? 1);
        if ($threads <= 1) {
            $counts = $this->sequence($command, $n);
        } elseif ($this->adapter === 'guzzle') {
            $counts = $this->promises($command, $n, $threads);
        } else {
            $counts = $this->processes($command, $n, $threads);
        }
        return [
            'statuses' => (object) array_filter($counts, is_int(...), ARRAY_FILTER_USE_KEY),
            'errors' => (object) array_filter($counts, is_string(...), ARRAY_FILTER_USE_KEY),
            'seconds' => microtime(true) - $began,
        ];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<int|string, int> how many requests ended with each status or error
     */
    private function sequence(array $command, int $n): array
    {
        $counts = [];
        while ($n-- > 0) {
            $answer = $this->request($command);
            $result = $answer['status'] ?? $answer['error'];
            $counts[$result] = ($counts[$result] ?? 0) + 1;
        }
        return $counts;
    }

    /**
     * @param array<string, mixed> $command
     * @return array<int|string, int>
     */
    private function promises(array $command, int $n, int $threads): array
    {
        [$method, $url, $body, $headers, $timeout] = self::arguments($command);
        $requests = (static function () use ($n, $method, $url, $headers, $body) {
            for ($i = 0; $i < $n; $i++) {
                yield new Request($method, $url, $headers, $body);
            }
        })();
        $counts = [];
        $count = static function (int|string $result) use (&$counts): void {
            $counts[$result] = ($counts[$result] ?? 0) + 1;
        };
        (new Pool(guzzle(isset($command['url']) ? null : $this->client), $requests, [
            'concurrency' => $threads,
            'options' => ['timeout' => $timeout ?? 0],
            'fulfilled' => static fn (ResponseInterface $response) => $count($response->getStatusCode()),
            'rejected' => static fn (\Throwable $error) => $count(self::name($error)),
        ]))->promise()->wait();
        return $counts;
    }

    /**
     * @param array<string, mixed> $command
     * @return array<int|string, int>
     */
    private function processes(array $command, int $n, int $threads): array
    {
        $children = [];
        for ($i = 0; $i < $threads; $i++) {
            $children[] = $this->child($command, intdiv($n, $threads) + (int) ($i < $n % $threads));
        }
        $sums = [];
        foreach ($children as [$pid, $pipe]) {
            foreach (json_decode(stream_get_contents($pipe), true) ?? ['other' => 1] as $result => $count) {
                $sums[$result] = ($sums[$result] ?? 0) + $count;
            }
            pcntl_waitpid($pid, $status);
        }
        return $sums;
    }

    /**
     * Sends requests in a process that is forked.
     *
     * @param array<string, mixed> $command
     * @return array{int, resource} its ID, and where its counts come from
     */
    private function child(array $command, int $n): array
    {
        [$reader, $writer] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $pid = pcntl_fork();
        if ($pid === 0) {
            fclose($reader);
            $this->connect(); // libraries do not know that their connections are the parent's
            fwrite($writer, json_encode((object) $this->sequence($command, $n)));
            exit(0);
        }
        fclose($writer);
        return [$pid, $reader];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public function fork(array $command): array
    {
        $began = microtime(true);
        $counts = $this->processes($command, $command['n'], 1);
        return [
            'statuses' => (object) array_filter($counts, is_int(...), ARRAY_FILTER_USE_KEY),
            'errors' => (object) array_filter($counts, is_string(...), ARRAY_FILTER_USE_KEY),
            'seconds' => microtime(true) - $began,
        ];
    }

    /** @return array<string, mixed> */
    public function close(): array
    {
        $this->client?->close();
        $this->client = null;
        return ['ok' => true];
    }

    /** Does what a worker does while it waits for its next job. */
    public function idle(): void
    {
        $this->client?->tick();
    }
}
