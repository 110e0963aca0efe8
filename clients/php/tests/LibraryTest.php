<?php

declare(strict_types=1);

namespace Lbd\Tests;

use GuzzleHttp\Client as Guzzle;
use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Psr7\Request;
use Lbd\Client;
use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\Failure;
use Lbd\Exception\TimedOut;
use Lbd\Exception\Unavailable;
use Lbd\Exception\UnknownCluster;
use Lbd\GuzzleMiddleware;
use Lbd\Psr18Client;
use PHPUnit\Framework\TestCase;
use Psr\Http\Client\ClientExceptionInterface;

/** Requests through each HTTP library, with a real daemon and real upstreams. */
final class LibraryTest extends TestCase
{
    private static Daemon $daemon;

    /** @var list<Client> */
    private array $clients = [];

    public static function setUpBeforeClass(): void
    {
        self::$daemon = new Daemon();
    }

    protected function tearDown(): void
    {
        foreach ($this->clients as $client) {
            $client->close();
        }
    }

    /** @param array<string, mixed> $settings */
    private function client(array $settings = []): Client
    {
        return $this->clients[] = new Client(...$settings + ['lbd' => self::$daemon->lbd]);
    }

    private static function guzzle(Client $client): Guzzle
    {
        $stack = HandlerStack::create();
        $stack->push(new GuzzleMiddleware($client));
        return new Guzzle(['handler' => $stack, 'http_errors' => false]);
    }

    /**
     * A function that sends a request with a library, and returns status and body.
     *
     * @return \Closure(string, string, string=, float=): array{int, string}
     */
    private static function sender(string $library, Client $client): \Closure
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
        $inner = static fn (float $seconds): Guzzle => new Guzzle(['handler' => $stack, 'timeout' => $seconds]);
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

    /** @dataProvider libraries */
    public function testKeepsHostPathAndBody(string $library): void
    {
        $upstream = new Upstream();
        self::$daemon->push('keeps', [$upstream->address]);
        $send = self::sender($library, $this->client());
        self::assertSame([200, $upstream->address], $send('POST', 'http://keeps.lbd/a%20b?c=d', 'body'));
        [$request] = $upstream->requests();
        self::assertSame(['POST', '/a%20b?c=d', 'keeps.lbd', 'body'], [$request['method'], $request['path'], $request['host'], $request['body']]);
    }

    /** @dataProvider libraries */
    public function testDoesNotTouchOtherHosts(string $library): void
    {
        $upstream = new Upstream();
        $send = self::sender($library, $this->client(['lbd' => 'http://127.0.0.1:1']));
        self::assertSame(200, $send('GET', "http://$upstream->address/x")[0]);
        self::assertSame($upstream->address, $upstream->requests()[0]['host']);
    }

    /** @dataProvider modes */
    public function testRetriesAtAnotherEndpoint(string $library, string $mode): void
    {
        foreach (['reset', '503'] as $broken) {
            [$good, $bad] = [new Upstream(), new Upstream($broken)];
            self::$daemon->push('retries', [$good->address, $bad->address]);
            $send = self::sender($library, $this->client(['mode' => $mode]));
            for ($i = 0; $i < 8; $i++) {
                self::assertSame([200, $good->address], $send('PUT', 'http://retries.lbd/', 'x'));
            }
            self::assertNotSame([], $bad->requests());
            self::assertSame(array_fill(0, 8, 'x'), array_column($good->requests(), 'body'));
        }
    }

    /** @dataProvider libraries */
    public function testDoesNotRetryAPost(string $library): void
    {
        [$good, $bad] = [new Upstream(), new Upstream('503')];
        self::$daemon->push('post', [$good->address, $bad->address]);
        $send = self::sender($library, $this->client());
        $statuses = [];
        for ($i = 0; $i < 8; $i++) {
            $statuses[] = $send('POST', 'http://post.lbd/', 'x')[0];
        }
        self::assertEqualsCanonicalizing([200, 503], array_values(array_unique($statuses)));
        self::assertCount(8, [...$good->requests(), ...$bad->requests()]);
    }

    /**
     * curl sends a request again if a connection that was open before ends without an answer.
     *
     * @dataProvider posts
     */
    public function testNeverSendsAPostTwice(string $library, string $body): void
    {
        $upstream = new Upstream();
        self::$daemon->push('twice', [$upstream->address]);
        $send = self::sender($library, $this->client());
        self::assertSame(200, $send('GET', 'http://twice.lbd/')[0]);
        try {
            $send('POST', 'http://twice.lbd/reset', $body);
        } catch (\RuntimeException) {
        }
        try {
            $send('POST', 'http://twice.lbd/200', $body);
            $send('POST', 'http://twice.lbd/201', $body);
        } catch (\RuntimeException) {
        }
        self::assertSame(['GET', 'POST'], array_column(array_slice($upstream->requests(), 0, 2), 'method'));
        self::assertSame(array_unique(array_column($upstream->requests(), 'path')), array_column($upstream->requests(), 'path'));
    }

    /** @return iterable<string, array{string, string}> */
    public function posts(): iterable
    {
        foreach (['core', 'guzzle'] as $library) {
            yield "$library with a body" => [$library, 'x'];
            yield "$library without" => [$library, ''];
        }
    }

    /** @dataProvider libraries */
    public function testGivesTheResultOfTheLastTry(string $library): void
    {
        [$one, $two] = [new Upstream('503'), new Upstream('502')];
        self::$daemon->push('last', [$one->address, $two->address]);
        self::assertContains(self::sender($library, $this->client())('GET', 'http://last.lbd/')[0], [502, 503]);
        self::assertCount(2, [...$one->requests(), ...$two->requests()]);
    }

    /** @dataProvider libraries */
    public function testEndsAtTheDeadline(string $library): void
    {
        foreach (['hang', 'drip'] as $behavior) {
            [$one, $two] = [new Upstream($behavior), new Upstream($behavior)];
            self::$daemon->push('deadline', [$one->address, $two->address]);
            $send = self::sender($library, $this->client());
            $began = microtime(true);
            try {
                $send('GET', 'http://deadline.lbd/', '', 0.3);
                self::fail('no error');
            } catch (TimedOut | GuzzleException $error) {
                self::assertStringContainsString('timed out', $error->getMessage());
            }
            self::assertEqualsWithDelta(0.5, microtime(true) - $began, 0.25);
            self::assertCount(1, [...$one->requests(), ...$two->requests()]);
        }
    }

    /** @dataProvider libraries */
    public function testReportsHowRequestsEnded(string $library): void
    {
        $cluster = "reports-$library";
        $upstream = new Upstream();
        self::$daemon->push($cluster, [$upstream->address]);
        $client = $this->client();
        $send = self::sender($library, $client);
        foreach (['/', '/404', '/500'] as $path) {
            $send('GET', "http://$cluster.lbd$path");
        }
        try {
            $send('GET', "http://$cluster.lbd/hang", '', 0.1);
        } catch (Failure | ClientExceptionInterface) {
        }
        $client->close();
        self::assertSame([2, 2], [self::$daemon->reported($cluster, 'success'), self::$daemon->reported($cluster, 'error')]);
    }

    /** @dataProvider libraries */
    public function testEndsLeases(string $library): void
    {
        $cluster = "leases-$library";
        $upstream = new Upstream();
        self::$daemon->push($cluster, [$upstream->address]);
        $client = $this->client(['mode' => 'lease']);
        $send = self::sender($library, $client);
        for ($i = 0; $i < 5; $i++) {
            $send('GET', "http://$cluster.lbd/");
        }
        $ended = "lbd_leases_finished_total{cluster=\"$cluster\",outcome=\"success\"}";
        Process::until(static fn (): bool => self::$daemon->metric($ended) === 5, 'all leases are ended');
        self::assertSame(0, self::$daemon->inFlight($cluster));
    }

    /** @dataProvider modes */
    public function testTellsARejectionFromAnUnreachableDaemon(string $library, string $mode): void
    {
        $upstream = new Upstream();
        self::$daemon->push('drops', [$upstream->address], ['drop_overloads' => [['category' => 'shed', 'drop_percentage' => ['numerator' => 100]]]]);
        $fallback = ['mode' => $mode, 'fallback' => $upstream->address];
        $gone = ['lbd' => 'http://127.0.0.1:1', 'mode' => $mode];
        self::assertSame(Unavailable::class, self::errorOf(self::sender($library, $this->client($gone)), 'drops'));
        self::assertSame(Dropped::class, self::errorOf(self::sender($library, $this->client($fallback)), 'drops'));
        self::assertSame(UnknownCluster::class, self::errorOf(self::sender($library, $this->client($fallback)), 'nobody'));
        self::assertSame([], $upstream->requests());
        self::assertSame(200, self::sender($library, $this->client($gone + $fallback))('GET', 'http://drops.lbd/')[0]);
    }

    /** @param \Closure(string, string): array{int, string} $send */
    private static function errorOf(\Closure $send, string $cluster): string
    {
        try {
            $send('GET', "http://$cluster.lbd/");
        } catch (ClientExceptionInterface $error) {
            self::assertInstanceOf(GuzzleException::class, $error);
            return $error::class;
        }
        return '';
    }

    public function testGuzzleSendsManyRequestsAtATime(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('many', [$upstream->address], []);
        $guzzle = self::guzzle($this->client());
        $promises = [];
        for ($i = 0; $i < 20; $i++) {
            $promises[] = $guzzle->getAsync('http://many.lbd/');
        }
        $hanging = $guzzle->getAsync('http://many.lbd/hang');
        $hanging->cancel();
        unset($hanging);
        foreach ($promises as $promise) {
            self::assertSame(200, $promise->wait()->getStatusCode());
        }
        $this->clients[0]->close();
        self::assertSame([20, 1], [self::$daemon->reported('many', 'success'), self::$daemon->reported('many', 'cancelled')]);
    }

    public function testAStreamIsInFlightUntilItIsRead(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('stream', [$upstream->address]);
        $guzzle = self::guzzle($this->client(['mode' => 'lease']));
        $response = $guzzle->get('http://stream.lbd/', ['stream' => true]);
        self::assertSame(1, self::$daemon->inFlight('stream'));
        self::assertSame($upstream->address, $response->getBody()->getContents());
        Process::until(static fn (): bool => self::$daemon->inFlight('stream') === 0, 'the lease is ended');
    }

    public function testGuzzleDoesNotMixBodiesInASink(): void
    {
        [$good, $bad] = [new Upstream(), new Upstream('503')];
        self::$daemon->push('sink', [$good->address, $bad->address]);
        $guzzle = self::guzzle($this->client());
        for ($i = 0; $i < 4; $i++) {
            $sink = fopen('php://memory', 'w+');
            $response = $guzzle->get('http://sink.lbd/', ['sink' => $sink]);
            rewind($sink);
            self::assertContains(stream_get_contents($sink), [$good->address, $bad->address]);
        }
    }

    public function testCoreWritesToASink(): void
    {
        [$good, $bad] = [new Upstream(), new Upstream('503')];
        self::$daemon->push('sink', [$good->address, $bad->address]);
        $client = $this->client();
        for ($i = 0; $i < 4; $i++) {
            $sink = fopen('php://memory', 'w+');
            self::assertSame('', $client->request('GET', 'http://sink.lbd/', sink: $sink)->body);
            rewind($sink);
            self::assertSame($good->address, stream_get_contents($sink));
        }
    }

    public function testUsesConnectionsAgain(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('again', [$upstream->address]);
        $client = $this->client();
        foreach (['GET', 'HEAD', 'PUT', 'GET'] as $method) {
            $client->request($method, 'http://again.lbd/', $method === 'PUT' ? 'x' : '');
        }
        $client->request('POST', 'http://again.lbd/', 'x');
        self::assertCount(1, array_unique(array_column($upstream->requests(), 'connection')));
    }

    public function testRejectsWhatIsNotARequest(): void
    {
        $client = $this->client();
        foreach ([['GET', 'orders.lbd'], ['GET', 'ftp://orders.lbd/'], ['GET', 'http://orders.lbd/', '', ["A\r\nB" => 'x']], ['GET', 'http://orders.lbd/', '', ['A' => "x\ny"]]] as $arguments) {
            try {
                $client->request(...$arguments);
                self::fail(json_encode($arguments) ?: '');
            } catch (\ValueError $error) {
                self::assertStringContainsString('not ', $error->getMessage());
            }
        }
    }

    public function testConnectsElsewhereAfterTheConnectTimeout(): void
    {
        $silent = stream_socket_server('tcp://127.0.0.1:0', $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, stream_context_create(['socket' => ['backlog' => 0]]));
        $address = (string) stream_socket_get_name($silent, false);
        $filled = [];
        while (@stream_socket_client("tcp://$address", $code, $message, 0.2)) {
            $filled[] = true;
            self::assertLessThan(10, count($filled));
        }
        $good = new Upstream();
        self::$daemon->push('connects', [$address, $good->address]);
        foreach (['core', 'guzzle'] as $library) {
            $send = self::sender($library, $this->client(['connectTimeout' => 0.2]));
            for ($i = 0; $i < 3; $i++) {
                self::assertSame([200, $good->address], $send('GET', 'http://connects.lbd/'));
            }
        }
    }

    public function testKnowsAFullCircuitBreaker(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('full', [$upstream->address]);
        self::$daemon->call('PUT', '/v1/clusters/full/config', ['name' => 'full', 'type' => 'EDS', 'eds_cluster_config' => ['eds_config' => ['ads' => (object) []]], 'circuit_breakers' => ['thresholds' => [['max_requests' => 1]]]]);
        $holder = $this->client(['mode' => 'lease']);
        $attempt = $holder->call('full', 10.0, false)->first();
        foreach (['batch', 'pick', 'lease'] as $mode) {
            self::assertSame(CircuitBroken::class, self::errorOf(self::sender('core', $this->client(['mode' => $mode])), 'full'), $mode);
        }
        $attempt->finish();
    }
}
