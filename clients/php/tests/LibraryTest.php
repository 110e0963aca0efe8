<?php

declare(strict_types=1);

namespace Lbd\Tests;

use GuzzleHttp\Exception\GuzzleException;
use GuzzleHttp\Psr7\NoSeekStream;
use GuzzleHttp\Psr7\Request;
use GuzzleHttp\Psr7\Utils;
use Lbd\Exception\Dropped;
use Lbd\Exception\Failure;
use Lbd\Exception\TimedOut;
use Lbd\Exception\Unavailable;
use Lbd\Exception\UnknownCluster;
use Lbd\Psr18Client;
use Psr\Http\Client\ClientExceptionInterface;

/** Requests through each HTTP library. */
final class LibraryTest extends RequestTestCase
{
    /** So many requests that some go to each of two endpoints: the picks of a batch are shuffled. */
    private const MANY = 40;

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

    /** @dataProvider libraries */
    public function testTheProxyOfTheEnvironmentIsForOtherHosts(string $library): void
    {
        [$endpoint, $other, $proxy] = [new Upstream(), new Upstream(), new Upstream()];
        self::$daemon->push('proxied', [$endpoint->address]);
        array_map(static fn (string $name) => putenv("$name=http://$proxy->address"), ['http_proxy', 'HTTP_PROXY']);
        try {
            $send = self::sender($library, $this->client());
            self::assertSame([200, $endpoint->address], $send('GET', 'http://proxied.lbd/'));
            self::assertSame([200, $proxy->address], $send('GET', "http://$other->address/x"));
        } finally {
            array_map(putenv(...), ['http_proxy', 'HTTP_PROXY']);
        }
        self::assertSame(["http://$other->address/x"], array_column($proxy->requests(), 'path'));
    }

    /** @dataProvider modes */
    public function testRetriesAtAnotherEndpoint(string $library, string $mode): void
    {
        foreach (['reset', '503'] as $broken) {
            [$good, $bad] = [new Upstream(), new Upstream($broken)];
            self::$daemon->push('retries', [$good->address, $bad->address]);
            $send = self::sender($library, $this->client(['mode' => $mode]));
            for ($i = 0; $i < self::MANY; $i++) {
                self::assertSame([200, $good->address], $send('PUT', 'http://retries.lbd/', 'x'));
            }
            self::assertNotSame([], $bad->requests());
            self::assertSame(array_fill(0, self::MANY, 'x'), array_column($good->requests(), 'body'));
        }
    }

    /** @dataProvider libraries */
    public function testDoesNotRetryAPost(string $library): void
    {
        [$good, $bad] = [new Upstream(), new Upstream('503')];
        self::$daemon->push('post', [$good->address, $bad->address]);
        $send = self::sender($library, $this->client());
        $statuses = [];
        for ($i = 0; $i < self::MANY; $i++) {
            $statuses[] = $send('POST', 'http://post.lbd/', 'x')[0];
        }
        self::assertEqualsCanonicalizing([200, 503], array_values(array_unique($statuses)));
        self::assertCount(self::MANY, [...$good->requests(), ...$bad->requests()]);
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
                $send('GET', 'http://deadline.lbd/', '', 1.0);
                self::fail('no error');
            } catch (TimedOut | GuzzleException $error) {
                self::assertStringContainsString('timed out', $error->getMessage());
            }
            self::assertGreaterThan(0.99, microtime(true) - $began);
            self::assertLessThan(20.0, microtime(true) - $began, 'not the 30 s of the client');
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
            $send('GET', "http://$cluster.lbd/hang", '', 1.0);
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

    /** @dataProvider modes */
    public function testSendsElsewhereWhatWasNotSent(string $library, string $mode): void
    {
        $cluster = "unsent-$library-$mode";
        $good = new Upstream();
        self::$daemon->push($cluster, [$good->address, self::refuses()]);
        $client = $this->client(['mode' => $mode, 'maxTokens' => 0.0, 'retries' => 0]);
        $send = self::sender($library, $client);
        for ($i = 0; $i < self::MANY; $i++) {
            self::assertSame([200, $good->address], $send('POST', "http://$cluster.lbd/", 'x'));
        }
        self::assertSame(array_fill(0, self::MANY, 'x'), array_column($good->requests(), 'body'));
        $client->close();
        self::assertSame(0, self::$daemon->reported($cluster, 'error'));
        self::assertGreaterThan(0, self::$daemon->metric($mode === 'lease'
            ? "lbd_leases_finished_total{cluster=\"$cluster\",outcome=\"unreachable\"}"
            : "lbd_reported_connect_failures_total{cluster=\"$cluster\"}"));
    }

    /** @dataProvider libraries */
    public function testDoesNotWaitForAnEndpointThatIsSilent(string $library): void
    {
        $good = new Upstream();
        self::$daemon->push('silent', [$this->silent(), $good->address]);
        $send = self::sender($library, $this->client(['connectTimeout' => 60.0]));
        for ($i = 0; $i < 8; $i++) {
            self::assertSame([200, $good->address], $send('POST', 'http://silent.lbd/', 'x', 20.0));
        }
    }

    public function testSendsABodyThatCannotBeReadAgainOnce(): void
    {
        $good = new Upstream();
        self::$daemon->push('once', [$good->address, self::refuses()]);
        $guzzle = self::guzzle($this->client());
        $client = new Psr18Client($this->client(), $guzzle);
        for ($i = 0; $i < self::MANY; $i++) {
            try { // Guzzle reads a short body before there is a connection
                $body = new NoSeekStream(Utils::streamFor('x'));
                $i % 2 === 0 ? $guzzle->request('POST', 'http://once.lbd/', ['body' => $body]) : $client->sendRequest(new Request('POST', 'http://once.lbd/', [], $body));
            } catch (GuzzleException) {
            }
        }
        self::assertSame(['x'], array_values(array_unique(array_column($good->requests(), 'body'))));
    }

    public function testConnectsElsewhereAfterTheConnectTimeout(): void
    {
        $address = $this->silent();
        $good = new Upstream();
        self::$daemon->push('connects', [$address, $good->address]);
        foreach (['core', 'guzzle'] as $library) {
            $send = self::sender($library, $this->client(['connectTimeout' => 0.2]));
            for ($i = 0; $i < 3; $i++) {
                self::assertSame([200, $good->address], $send('GET', 'http://connects.lbd/'));
            }
        }
    }
}
