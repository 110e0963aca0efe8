<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** Requests while endpoints fail. */
final class FailureTest extends RequestTestCase
{
    public static function setUpBeforeClass(): void
    {
        self::$daemon = new Daemon('tcp');
    }

    /**
     * lbd hears that the only endpoint of a priority is gone from the request that finds it, which goes to the next
     * priority as soon as lbd does.
     *
     * @dataProvider modes
     */
    public function testWaitsForAnotherPriority(string $library, string $mode): void
    {
        $cluster = "priorities-$library-$mode";
        [$first, $second] = [new Upstream(), new Upstream()];
        self::$daemon->push($cluster, [$first->address], [], [$second->address]);
        $send = self::sender($library, $this->client(['mode' => $mode, 'maxAge' => 3600.0]));
        self::assertSame([200, $first->address], $send('GET', "http://$cluster.lbd/"));
        unset($first);
        self::assertSame([200, $second->address], $send('POST', "http://$cluster.lbd/", 'x'));
    }

    public function testReportsErrorsEarly(): void
    {
        $upstream = new Upstream('500');
        self::$daemon->push('early', [$upstream->address]);
        $client = $this->client(['reportInterval' => 300.0]);
        for ($i = 0; $i < 5; $i++) {
            $client->request('GET', 'http://early.lbd/');
        }
        Process::until(static function () use ($client): bool {
            $client->tick(0.01);
            return self::$daemon->reported('early', 'error') === 5;
        }, 'the errors are reported');
        self::assertCount(5, $upstream->requests());
    }
}
