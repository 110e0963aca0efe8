<?php

declare(strict_types=1);

namespace Lbd\Conformance;

use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\Handler\CurlMultiHandler;
use GuzzleHttp\Pool;
use GuzzleHttp\Psr7\Request;
use Lbd\Ask;
use Lbd\Client;
use Lbd\Exception;
use Lbd\GuzzleMiddleware;
use Lbd\State;
use Lbd\Tried;
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

    /** Options for the host of the cluster, or for this program. */
    private const OTHERS = ['hash', 'target', 'headers', 'choice', 'hooks'];
    private const ERRORS = [
        Exception\Dropped::class => 'dropped',
        Exception\CircuitBroken::class => 'circuit_broken',
        Exception\Unavailable::class => 'unavailable',
        Exception\UnknownCluster::class => 'unknown_cluster',
        Exception\PermissionDenied::class => 'permission_denied',
        Exception\TimedOut::class => 'timeout',
    ];

    /** Seconds that requests took since they were due, by the second in which they were. @var array<int, list<float>> */
    private array $took = [];

    private ?Client $client = null;
    private string $adapter = 'core';

    /** @var array<string, mixed> */
    private array $options = [];
    /** @var array{attempts: list<array<string, mixed>>, states: list<string>} */
    private array $events = ['attempts' => [], 'states' => []];

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
        $options = $this->options = $command['options'] ?? [];
        if ($unknown = array_diff_key($options, self::OPTIONS, array_flip(self::OTHERS))) {
            return ['unsupported' => 'options ' . implode(', ', array_keys($unknown))];
        }
        $hash = ($options['hash'] ?? 'code') === 'code' ? [] : ['hash' => $options['hash']];
        $host = $hash + (isset($options['target']) ? array_intersect_key($options, ['target' => 0, 'headers' => 0]) : ['cluster' => $command['cluster']]);
        $settings = ['lbd' => $command['lbd'], 'mode' => $command['mode'], 'hosts' => ['upstream.test' => $host]];
        $settings += ['token' => $command['token'] ?? null, 'tokenFile' => $command['token_file'] ?? null];
        foreach (array_intersect_key($options, self::OPTIONS) as $name => $value) {
            $settings[self::OPTIONS[$name]] = $value;
        }
        $this->events = ['attempts' => [], 'states' => []];
        if (isset($options['hooks'])) {
            $fails = static fn () => $options['hooks'] === 'fail' ? throw new \RuntimeException('a hook that fails') : null;
            $settings['onAttempt'] = function (Tried $tried) use ($fails): void {
                $this->events['attempts'][] = [
                    'cluster' => $tried->choice->cluster, 'address' => $tried->choice->address, 'number' => $tried->choice->attempt,
                    'outcome' => $tried->outcome, 'seconds' => $tried->duration,
                ];
                $fails();
            };
            $settings['onState'] = function (State $state) use ($fails): void {
                $this->events['states'][] = $state->value;
                $fails();
            };
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
     * @param int $number of the request in a load
     * @return array{string, string, string, array<string, string>, ?float, ?Ask}
     */
    private function arguments(array $command, int $number = 0): array
    {
        $headers = $command['headers'] ?? [];
        $key = $command['key'] ?? '';
        $key .= isset($command['keys']) ? '-' . $number % $command['keys'] : '';
        [$kind, $name] = explode(':', $this->options['hash'] ?? '', 2) + ['', ''];
        if ($key !== '' && $kind !== 'code') {
            $headers += $kind === 'header' ? [$name => $key] : ['Cookie' => "other=x; $name=$key"];
        }
        $ask = $kind === 'code' || isset($this->options['choice']) ? new Ask($kind === 'code' ? $key : '') : null;
        return [
            $command['method'] ?? 'GET',
            $command['url'] ?? 'http://upstream.test' . ($command['path'] ?? '/'),
            $command['body'] ?? '',
            $headers + (($command['idempotent'] ?? false) ? ['Idempotency-Key' => '1'] : []),
            isset($command['timeout']) ? (float) $command['timeout'] : null,
            $ask,
        ];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public function request(array $command, int $number = 0): array
    {
        $arguments = $this->arguments($command, $number);
        $end = microtime(true) + ($command['timeout'] ?? 30.0);
        try {
            [$status, $body] = (isset($command['url']) ? $this->plain : $this->send)(...$arguments);
            $answer = ['status' => $status, 'body' => $body];
        } catch (\Throwable $error) {
            $answer = ['error' => self::name($error, microtime(true) >= $end - 0.05), 'message' => $error->getMessage()];
        }
        $choice = $arguments[5]?->choice;
        return $answer + ($choice === null ? [] : ['choice' => ['zone' => $choice->locality['zone']] + (array) $choice]);
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
        $this->took = [];
        if ($threads <= 1) {
            $counts = $this->sequence($command, range(0, $n - 1), $began);
        } elseif ($this->adapter === 'guzzle') {
            $counts = isset($command['rate']) ? $this->paced($command, $n, $threads, $began) : $this->promises($command, $n, $threads);
        } else {
            $counts = $this->processes($command, $n, $threads, $began);
        }
        ksort($this->took);
        return self::answer($counts, $began) + ['p99' => array_map(static function (array $took): float {
            sort($took);
            return $took[intdiv(count($took) * 99, 100)];
        }, array_values($this->took))];
    }

    /**
     * @param array<int|string, int> $counts
     * @return array<string, mixed>
     */
    private static function answer(array $counts, float $began): array
    {
        return [
            'statuses' => (object) array_filter($counts, is_int(...), ARRAY_FILTER_USE_KEY),
            'errors' => (object) array_filter($counts, is_string(...), ARRAY_FILTER_USE_KEY),
            'seconds' => microtime(true) - $began,
        ];
    }

    /**
     * @param array<string, mixed> $command
     * @param list<int> $numbers of the requests
     * @return array<int|string, int> how many requests ended with each status or error
     */
    private function sequence(array $command, array $numbers, float $began): array
    {
        $counts = [];
        foreach ($numbers as $i) {
            $due = isset($command['rate']) ? $began + ($i + 1) / $command['rate'] : 0.0;
            while (($left = $due - microtime(true)) > 0) {
                usleep((int) ceil($left * 1e6));
            }
            $answer = $this->request($command, $i);
            $result = $answer['status'] ?? $answer['error'];
            $counts[$result] = ($counts[$result] ?? 0) + 1;
            if ($due > 0) {
                $this->took[(int) ($due - $began)][] = microtime(true) - $due;
            }
        }
        return $counts;
    }

    /**
     * Sends requests of Guzzle at a rate.
     *
     * @param array<string, mixed> $command
     * @return array<int|string, int>
     */
    private function paced(array $command, int $n, int $threads, float $began): array
    {
        [$method, $url, $body, $headers, $timeout] = $this->arguments($command);
        $handler = new CurlMultiHandler(['select_timeout' => 0.001]);
        $guzzle = guzzle($this->client, $handler);
        $counts = [];
        $sent = $ended = 0;
        while ($ended < $n) {
            $due = $began + ($sent + 1) / $command['rate'];
            if ($sent < $n && $sent - $ended < $threads && microtime(true) >= $due) {
                $sent++;
                $count = function (int|string $result) use (&$counts, &$ended, $due, $began): void {
                    $ended++;
                    $counts[$result] = ($counts[$result] ?? 0) + 1;
                    $this->took[(int) ($due - $began)][] = microtime(true) - $due;
                };
                $guzzle->requestAsync($method, $url, ['body' => $body, 'headers' => $headers, 'timeout' => $timeout ?? 0])->then(
                    static fn (ResponseInterface $response) => $count($response->getStatusCode()),
                    static fn (\Throwable $error) => $count(self::name($error)),
                );
            }
            $handler->tick();
            if ($sent === $ended) {
                usleep(200);
            }
        }
        return $counts;
    }

    /**
     * @param array<string, mixed> $command
     * @return array<int|string, int>
     */
    private function promises(array $command, int $n, int $threads): array
    {
        $guzzle = guzzle(isset($command['url']) ? null : $this->client);
        $requests = (function () use ($command, $n, $guzzle) {
            for ($i = 0; $i < $n; $i++) {
                [$method, $url, $body, $headers, $timeout, $ask] = $this->arguments($command, $i);
                $options = ['timeout' => $timeout ?? 0, GuzzleMiddleware::ASK => $ask];
                yield static fn () => $guzzle->sendAsync(new Request($method, $url, $headers, $body), $options);
            }
        })();
        $counts = [];
        $count = static function (int|string $result) use (&$counts): void {
            $counts[$result] = ($counts[$result] ?? 0) + 1;
        };
        (new Pool($guzzle, $requests, [
            'concurrency' => $threads,
            'fulfilled' => static fn (ResponseInterface $response) => $count($response->getStatusCode()),
            'rejected' => static fn (\Throwable $error) => $count(self::name($error)),
        ]))->promise()->wait();
        return $counts;
    }

    /**
     * @param array<string, mixed> $command
     * @return array<int|string, int>
     */
    private function processes(array $command, int $n, int $threads, float $began): array
    {
        $children = [];
        for ($i = 0; $i < $threads; $i++) {
            $children[] = $this->child($command, range($i, $n - 1, $threads), $began);
        }
        $sums = [];
        foreach ($children as [$pid, $pipe]) {
            [$counts, $took] = json_decode(stream_get_contents($pipe), true) ?? [['other' => 1], []];
            foreach ($counts as $result => $count) {
                $sums[$result] = ($sums[$result] ?? 0) + $count;
            }
            foreach ($took as $second => $some) {
                $this->took[$second] = [...$this->took[$second] ?? [], ...$some];
            }
            pcntl_waitpid($pid, $status);
        }
        return $sums;
    }

    /**
     * Sends requests in a process that is forked.
     *
     * @param array<string, mixed> $command
     * @param list<int> $numbers
     * @return array{int, resource} its ID, and where its counts come from
     */
    private function child(array $command, array $numbers, float $began): array
    {
        [$reader, $writer] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $pid = pcntl_fork();
        if ($pid === 0) {
            fclose($reader);
            $this->connect(); // libraries do not know that their connections are the parent's
            $counts = $this->sequence($command, $numbers, $began);
            fwrite($writer, json_encode([(object) $counts, (object) $this->took]));
            exit(0);
        }
        fclose($writer);
        stream_set_timeout($reader, 3600); // the default is a minute
        return [$pid, $reader];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public function fork(array $command): array
    {
        $began = microtime(true);
        $this->took = [];
        return self::answer($this->processes($command, $command['n'], 1, $began), $began);
    }

    /** @return array{attempts: list<array<string, mixed>>, states: list<string>} what the hooks got since the last time */
    public function events(): array
    {
        $this->idle(); // hooks are called by what is done in the background
        [$events, $this->events] = [$this->events, ['attempts' => [], 'states' => []]];
        return $events;
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
