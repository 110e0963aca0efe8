<?php

declare(strict_types=1);

namespace Lbd\Tests;

use GuzzleHttp\Client as Guzzle;
use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Psr7\Request;
use Lbd\Client;
use Lbd\GuzzleMiddleware;
use Lbd\Psr18Client;
use PHPUnit\Framework\TestCase;
use Psr\Http\Client\ClientExceptionInterface;

/** A test of requests with a real daemon and real upstreams. */
abstract class RequestTestCase extends TestCase
{
    protected static Daemon $daemon;

    /** @var list<Client> */
    private array $clients = [];

    /** @var list<resource> */
    private array $servers = [];

    public static function setUpBeforeClass(): void
    {
        self::$daemon = new Daemon();
    }

    protected function tearDown(): void
    {
        foreach ($this->clients as $client) {
            $client->close();
        }
        $this->clients = $this->servers = []; // PHPUnit keeps the test, and processes of others inherit its descriptors
    }

    /** @param array<string, mixed> $settings */
    protected function client(array $settings = []): Client
    {
        return $this->clients[] = new Client(...$settings + ['lbd' => self::$daemon->lbd]);
    }

    protected static function guzzle(Client $client): Guzzle
    {
        $stack = HandlerStack::create();
        $stack->push(new GuzzleMiddleware($client));
        return new Guzzle(['handler' => $stack, 'http_errors' => false]);
    }

    /** An address that refuses connections. */
    protected static function refuses(): string
    {
        return (string) stream_socket_get_name(stream_socket_server('tcp://127.0.0.1:0'), false);
    }

    /** The address of a server that does not accept connections. */
    protected function silent(): string
    {
        $server = stream_socket_server('tcp://127.0.0.1:0', $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, stream_context_create(['socket' => ['backlog' => 0]]));
        self::assertNotFalse($server);
        $this->servers[] = $server;
        $address = (string) stream_socket_get_name($server, false);
        for ($i = 0; @stream_socket_client("tcp://$address", $code, $message, 0.2); $i++) {
            self::assertLessThan(10, $i);
        }
        return $address;
    }

    /**
     * A function that sends a request with a library, and returns status and body.
     *
     * @return \Closure(string, string, string=, float=): array{int, string}
     */
    protected static function sender(string $library, Client $client): \Closure
    {
        if ($library === 'core') {
            return static function (string $method, string $url, string $body = '', float $timeout = 10.0) use ($client): array {
                $response = $client->request($method, $url, $body, timeout: $timeout);
                return [$response->status, $response->body];
            };
        }
        if ($library === 'guzzle') {
            $guzzle = self::guzzle($client);
            return static function (string $method, string $url, string $body = '', float $timeout = 10.0) use ($guzzle): array {
                $response = $guzzle->request($method, $url, ['body' => $body, 'timeout' => $timeout]);
                return [$response->getStatusCode(), (string) $response->getBody()];
            };
        }
        $stack = HandlerStack::create();
        $inner = static fn (float $seconds, float $connect): Guzzle => new Guzzle(['handler' => $stack, 'timeout' => $seconds, 'connect_timeout' => $connect]);
        return static function (string $method, string $url, string $body = '', float $timeout = 10.0) use ($client, $inner): array {
            $response = (new Psr18Client($client, $inner, $timeout))->sendRequest(new Request($method, $url, [], $body));
            return [$response->getStatusCode(), (string) $response->getBody()];
        };
    }

    /** @return iterable<string, array{string}> */
    public function libraries(): iterable
    {
        foreach (['core', 'psr18', 'guzzle'] as $library) {
            yield $library => [$library];
        }
    }

    /** @return iterable<string, array{string, string}> */
    public function modes(): iterable
    {
        foreach ($this->libraries() as [$library]) {
            foreach (['batch', 'pick', 'lease'] as $mode) {
                yield "$library $mode" => [$library, $mode];
            }
        }
    }

    /** @param \Closure(string, string): array{int, string} $send */
    protected static function errorOf(\Closure $send, string $cluster): string
    {
        try {
            $send('GET', "http://$cluster.lbd/");
        } catch (ClientExceptionInterface $error) {
            self::assertInstanceOf(GuzzleException::class, $error);
            return $error::class;
        }
        return '';
    }
}
