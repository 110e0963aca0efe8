<?php

declare(strict_types=1);

namespace Lbd\Tests;

use GuzzleHttp\Client as Guzzle;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Middleware;
use Lbd\GuzzleMiddleware;

/** What is special about Guzzle. */
final class GuzzleTest extends RequestTestCase
{
    public function testGuzzleSendsManyRequestsAtATime(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('many', [$upstream->address], []);
        $client = $this->client();
        $guzzle = self::guzzle($client);
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
        $client->close();
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

    public function testSaysThatItHasToBePushedLast(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('order', [$upstream->address]);
        $client = $this->client();
        $lbd = new GuzzleMiddleware($client);
        $retry = Middleware::retry(static fn (): bool => false);
        $log = Middleware::tap(static function (): void {
        });
        $orders = [
            [HandlerStack::create(), 'unshift', []],
            [HandlerStack::create(), 'push', [$retry]],
            [HandlerStack::create(), 'push', [$log, Middleware::prepareBody(), $retry]],
            [HandlerStack::create(), 'push', [$log, Middleware::prepareBody()]],
        ];
        foreach ($orders as $i => [$stack, $add, $later]) {
            $stack->$add($lbd);
            array_map($stack->push(...), $later);
            try {
                (new Guzzle(['handler' => $stack]))->get('http://order.lbd/');
                self::assertSame(3, $i);
            } catch (\LogicException $error) {
                self::assertStringContainsString('push Lbd\\GuzzleMiddleware last: it has to be after GuzzleHttp\\Re', $error->getMessage());
                self::assertLessThan(3, $i);
            }
        }
        self::assertCount(1, $upstream->requests());
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
}
