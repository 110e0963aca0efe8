<?php

declare(strict_types=1);

namespace Lbd\Tests;

use GuzzleHttp\Psr7\Request;
use Lbd\Ask;
use Lbd\Client;
use Lbd\Exception\ConnectionFailed;
use Lbd\Exception\Unavailable;
use Lbd\Exception\UnknownCluster;
use Lbd\GuzzleMiddleware;
use Lbd\Internal\Deadline;
use Lbd\Internal\Host;
use Lbd\Internal\UpstreamRequest;
use Lbd\Psr18Client;
use Lbd\State;

/** What requests ask, and what lbd has chosen. */
final class AskTest extends RequestTestCase
{
    public function testRejectsSettingsOfHosts(): void
    {
        $settings = [
            ['orders.lbd', ['hash' => 'X-User'], 'hash is not header:NAME or cookie:NAME'],
            ['orders.lbd', ['hash' => 'header:'], 'hash is not header:NAME or cookie:NAME'],
            ['orders.lbd', ['hsah' => 'header:X'], 'unknown field hsah'],
            ['orders.lbd', ['cluster' => 'orders', 'target' => 'shop'], 'set either cluster or target, not both'],
            ['shop.example', ['hash' => 'header:X'], 'set cluster or target'],
            ['shop.example', ['target' => 'shop', 'headers' => [7]], 'headers is a list of names'],
            ['shop.example', 7, 'neither a cluster nor an array'],
        ];
        foreach ($settings as [$host, $setting, $message]) {
            foreach ([[$host => $setting], static fn (): mixed => $setting] as $hosts) {
                try {
                    (new Client('unix:/x', hosts: $hosts))->host($host);
                    self::fail($message);
                } catch (\ValueError $error) {
                    self::assertStringContainsString("hosts: $host: ", $error->getMessage());
                    self::assertStringContainsString($message, $error->getMessage());
                }
            }
        }
    }

    public function testAsksForWhatHostsSay(): void
    {
        $long = str_repeat('ü', 1000);
        $headers = ['x-user' => 'a b&', 'Cookie' => 'a="1=2"; b=3', 'Tenant' => ['x', 'y'], 'Long' => $long];
        $target = ['target' => 'shop', 'headers' => ['tenant', 'none']];
        $tenants = '&header.tenant=x&header.tenant=y';
        $cases = [
            [['hash' => 'header:X-User'], null, '&hash=a%20b%26'],
            [['hash' => 'cookie:a'], null, '&hash=1%3D2'],
            [['hash' => 'cookie:c'], null, ''],
            [['hash' => 'header:long'], null, '&hash=' . rawurlencode(substr($long, 0, 1024))],
            [['hash' => 'header:X-User'], new Ask('mine'), '&hash=mine'],
            [[], new Ask('mine', '/p', ['tenant' => 'z']), '&hash=mine'],
            [[], new Ask(), ''],
            [$target, null, "&path=%2Fa%2520b$tenants"],
            [$target + ['hash' => 'cookie:b'], null, "&hash=3&path=%2Fa%2520b$tenants"],
            [$target, new Ask(path: '/p', headers: ['a' => '1', 'b' => ['2', '3']]), '&path=%2Fp&header.a=1&header.b=2&header.b=3'],
        ];
        $core = new UpstreamRequest('GET', 'http://shop.lbd/a%20b?c=d', '', $headers, true, 5.0, null, null);
        foreach ($cases as $i => [$setting, $ask, $query]) {
            $host = Host::of('shop.lbd', $setting);
            self::assertSame(isset($setting['target']) ? 'xds:///shop' : 'shop', $host->name);
            self::assertSame($query, $host->query($ask, $core), "case $i");
            self::assertSame($query, $host->query($ask, new Request('GET', 'http://shop.lbd/a%20b?c=d', $headers)), "case $i");
        }
        self::assertSame('&path=%2F', (new Host('xds:///shop'))->query(null, null));
        self::assertSame('&path=%2F', (new Host('xds:///shop'))->query(null, new Request('GET', 'http://shop.lbd')));
        self::assertSame('xds:///shop', Host::of('shop.lbd', 'xds:///shop')->name);
    }

    /** @return iterable<string, array{bool}> */
    public function memories(): iterable
    {
        yield 'of a process' => [false];
        yield 'of all' => [true];
    }

    /** @dataProvider memories */
    public function testKeepsTheBatchesThatWereUsedLast(bool $shared): void
    {
        $process = new Process([PHP_BINARY, '-d', 'apc.enable_cli=1', '-d', 'zend.assertions=1', __DIR__ . '/asked.php', (string) (int) $shared], 'php://stderr');
        self::assertSame("done\n", stream_get_contents($process->stdout));
    }

    /** @dataProvider modes */
    public function testSaysWhatLbdHasChosen(string $library, string $mode): void
    {
        $good = new Upstream();
        $bad = self::refuses();
        self::$daemon->push("choice-$library-$mode", [$bad, $good->address]);
        $client = $this->client(['mode' => $mode]);
        $url = "http://choice-$library-$mode.lbd/";
        $attempts = [];
        for ($i = 0; $i < 20; $i++) {
            $ask = new Ask();
            match ($library) {
                'core' => $client->request('GET', $url, ask: $ask),
                'guzzle' => self::guzzle($client)->get($url, [GuzzleMiddleware::ASK => $ask]),
                'psr18' => (new Psr18Client($client, self::guzzle($client)))->withAsk($ask)->sendRequest(new Request('GET', $url)),
            };
            $choice = $ask->choice;
            self::assertNotNull($choice);
            self::assertSame([substr($url, 7, -5), $good->address, 'zone 0', 0], [$choice->cluster, $choice->address, $choice->locality['zone'], $choice->priority]);
            $attempts[$choice->attempt] = true;
            (fn () => $this->known = [])->call($client->cluster($choice->cluster)->asides);
        }
        self::assertSame(2, max(array_keys($attempts)));
    }

    public function testSaysWhatLbdHasChosenAfterAnError(): void
    {
        self::$daemon->push('chosen', [self::refuses()]);
        $ask = new Ask();
        try {
            $this->client()->request('GET', 'http://chosen.lbd/', timeout: 2.0, ask: $ask);
            self::fail('no error');
        } catch (ConnectionFailed) {
            self::assertSame(['chosen', 1], [$ask->choice?->cluster, $ask->choice?->attempt]);
        }
        $upstream = new Upstream();
        $this->client(['lbd' => 'http://127.0.0.1:1', 'fallback' => $upstream->address])->request('GET', 'http://chosen.lbd/', ask: $ask);
        self::assertSame([$upstream->address, 1], [$ask->choice?->address, $ask->choice?->attempt]);
    }

    /** @dataProvider onlyModes */
    public function testSetsAnEndpointOfARingAside(string $mode): void
    {
        $upstreams = [new Upstream(), new Upstream()];
        $refuses = self::refuses();
        self::$daemon->push("ring-$mode", [$refuses, ...Upstream::addresses(...$upstreams)], [], [], true);
        $client = $this->client(['mode' => $mode]);
        $attempts = [];
        for ($i = 0; $i < 60; $i++) { // the first key of the endpoint that is gone finds it
            $ask = new Ask("key $i");
            self::assertSame(200, $client->request('POST', "http://ring-$mode.lbd/", 'x', ask: $ask)->status);
            $attempts[] = $ask->choice?->attempt;
        }
        self::assertContains(2, $attempts);
        self::assertLessThan(10, count(array_keys($attempts, 2, true)), 'one, and one for each trial after 1 s');
    }

    /** @return iterable<string, array{string}> */
    public function onlyModes(): iterable
    {
        foreach (['batch', 'pick', 'lease'] as $mode) {
            yield $mode => [$mode];
        }
    }

    public function testAPathWithoutARouteHarmsNoOther(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('routed', [$upstream->address]);
        self::$daemon->route('routes', ['/a' => 'routed']);
        $client = $this->client(['maxAge' => 0.2, 'staleFor' => 0.5, 'hosts' => ['routes.lbd' => ['target' => 'routes']]]);
        for ($end = microtime(true) + 2.0; microtime(true) < $end;) { // batches are replaced meanwhile
            try {
                $client->request('GET', 'http://routes.lbd/b');
                self::fail('no error');
            } catch (Unavailable $error) {
                self::assertSame('no_route', $error->reason);
            }
            self::assertSame(200, $client->request('GET', 'http://routes.lbd/a')->status);
            $client->tick(0.01);
        }
    }

    public function testKeysHideNoEndpoint(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('hidden', [self::refuses(), $upstream->address], [], [], true);
        for ($i = 0; $i < 10; $i++) {
            $client = $this->client();
            foreach (["$i", '', '', '', ''] as $key) {
                self::assertSame(200, $client->request('GET', 'http://hidden.lbd/', ask: new Ask($key))->status);
            }
        }
    }

    public function testAllKeysFollowTheCluster(): void
    {
        $upstreams = [new Upstream(), new Upstream()];
        for ($i = 0; $i < 10; $i++) {
            [$before, $after] = [$upstreams[$i % 2]->address, $upstreams[1 - $i % 2]->address];
            self::$daemon->push('moved', [$before], [], [], true);
            $client = $this->client();
            $send = static fn (string $key): string => $client->request('GET', 'http://moved.lbd/', ask: new Ask($key))->body;
            $send('first'); // the last batch is for this key
            self::$daemon->push('moved', [$after], [], [], true);
            Process::until(static fn (): bool => $send("other $i") === $after, 'lbd has the endpoint');
            self::assertSame($after, $send('first'));
        }
    }

    /** @dataProvider modes */
    public function testWhatIsTooLongIsAnErrorOfTheRequest(string $library, string $mode): void
    {
        $upstream = new Upstream();
        self::$daemon->push("long-$mode", [$upstream->address]);
        self::$daemon->route("long-$mode", ['/' => "long-$mode"]);
        $states = [];
        $client = $this->client(['mode' => $mode, 'fallback' => $upstream->address, 'hosts' => ['long.lbd' => ['target' => "long-$mode"]],
            'onState' => static function (State $state) use (&$states): void {
                $states[] = $state;
            }]);
        $send = self::sender($library, $client);
        // lbd rejects the first one, and would say nothing that a client understands to the others.
        foreach (['long.lbd/' . str_repeat('x', 5000), 'long.lbd/' . str_repeat('%2F', 30_000), str_repeat('x', 600) . '.lbd/'] as $url) {
            try {
                $send('GET', "http://$url");
                self::fail('no error');
            } catch (Unavailable $error) {
                self::assertSame('invalid_argument', $error->reason);
                self::assertLessThan(1000, strlen($error->getMessage()));
            }
            self::assertSame(200, $send('GET', 'http://long.lbd/')[0]);
        }
        self::assertSame([], $states);
    }

    /** They neither keep lbd busy, nor clusters from being used, which may be pushed later. */
    public function testForgetsNamesThatLbdDoesNotKnow(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('known', [$upstream->address]);
        $client = $this->client();
        $send = static fn (string $cluster): string => self::errorOf(self::sender('core', $client), $cluster);
        $rejected = static fn (): int => self::$daemon->metric('lbd_http_requests_total{code="404",method="GET",route="/v1/pick"}');
        $before = $rejected();
        foreach ([...range(1, 1100), ...array_fill(0, 20, 1100)] as $i) {
            self::assertSame(UnknownCluster::class, $send("later-$i"));
        }
        $after = $rejected();
        self::assertLessThan(1110, $after - $before, 'a name that was just refused costs no call');
        $client->tick(1.5); // longer than that
        self::assertSame($after, $rejected());
        self::assertSame('', $send('known'));
        self::$daemon->push('later-1100', [$upstream->address]);
        Process::until(static fn (): bool => $send('later-1100') === '', 'the cluster is known');
    }

    /** In the modes without a batch, those that lbd never gave an endpoint are the first to go. */
    public function testForgetsNamesInTurn(): void
    {
        $upstream = new Upstream();
        $client = $this->client(['mode' => 'pick']);
        foreach (['first', 'second'] as $name) {
            self::$daemon->push($name, [$upstream->address]);
            self::assertSame('', self::errorOf(self::sender('core', $client), $name));
        }
        [$first, $second] = [$client->cluster('first'), $client->cluster('second')];
        foreach (range(1, 2000) as $i) {
            $client->cluster("name-$i");
        }
        self::assertSame($first, $client->cluster('first'));
        foreach (range(1, 999) as $i) {
            $client->cluster("known-$i")->picked = Deadline::now();
        }
        self::assertSame($second, $client->cluster('second'));
        self::assertNotSame($first, $client->cluster('first'));
    }

    public function testForgetsWhatRequestsAskedLongAgo(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('idle', [$upstream->address]);
        $client = $this->client();
        $client->request('GET', 'http://idle.lbd/', ask: new Ask('a'));
        $client->request('GET', 'http://idle.lbd/', ask: new Ask('b'));
        $source = $client->cluster('idle')->source;
        $known = fn (): array => array_map(fn (string $key): bool => $this->asked->get("&hash=$key") !== null, ['a', 'b']);
        self::assertSame([true, true], $known->call($source));
        (fn () => $this->used = -INF)->call($source);
        $client->tick(0.01);
        self::assertSame([false, false], $known->call($source));
        self::assertSame(200, $client->request('GET', 'http://idle.lbd/', ask: new Ask('a'))->status);
    }

    /** @dataProvider onlyModes */
    public function testCountsAtTheClusterOfATarget(string $mode): void
    {
        $upstream = new Upstream();
        $clusters = ["one-$mode", "two-$mode"];
        self::$daemon->push($clusters[0], [$upstream->address]);
        self::$daemon->push($clusters[1], [$upstream->address, self::refuses()]);
        self::$daemon->route("shop-$mode", ['/two' => $clusters[1], '/' => $clusters[0]]);
        $client = $this->client(['mode' => $mode, 'hosts' => ['shop.example' => ['target' => "shop-$mode"]]]);
        foreach (['/', '/x', ...array_fill(0, 30, '/two')] as $path) {
            self::assertSame(200, $client->request('GET', "http://shop.example$path")->status);
        }
        $client->close();
        $outcomes = static fn (string $outcome): array => array_map(static fn (string $cluster): int => $mode === 'lease'
            ? self::$daemon->metric("lbd_leases_finished_total{cluster=\"$cluster\",outcome=\"$outcome\"}")
            : self::$daemon->reported($cluster, $outcome), $clusters);
        if ($mode !== 'pick') {
            self::assertSame([2, 30], $outcomes('success'));
        }
        if ($mode !== 'lease') {
            $failures = array_map(static fn (string $cluster): int => self::$daemon->metric("lbd_reported_connect_failures_total{cluster=\"$cluster\"}"), $clusters);
            self::assertSame(0, $failures[0]);
            self::assertGreaterThan(0, $failures[1]);
        }
    }
}
