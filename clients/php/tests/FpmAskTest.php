<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** What requests to the processes of a php-fpm ask, and what they share of it. */
final class FpmAskTest extends FpmTestCase
{
    public function testWorkersShareTheBatchesOfKeys(): void
    {
        $upstreams = [new Upstream(), new Upstream(), new Upstream()];
        $this->daemon->push('orders', Upstream::addresses(...$upstreams), [], [], true);
        $keys = array_map(static fn (int $i): string => "user $i", range(1, 40));
        $input = $this->input(['reportInterval' => 0.3], ['n' => 40, 'keys' => $keys]);
        $results = $this->fpm->request($input)['results'];
        self::assertCount(3, array_unique($results));
        $picks = $this->picks();
        self::assertGreaterThanOrEqual(40, $picks);
        self::assertSame($results, $this->fpm->request($input)['results']); // lbd may have had news in the first one
        $picks = $this->picks();
        foreach ($this->parallel(16, $input) as $answer) {
            self::assertSame($results, $answer['results']);
        }
        self::assertLessThan(20, $this->picks() - $picks, 'they call lbd only for the batch that is replaced');
        $plain = $this->parallel(8, $this->input(['reportInterval' => 0.3], ['n' => 10]));
        self::assertCount(3, array_unique(array_merge(...array_column($plain, 'results'))), 'requests without a key go anywhere');
        Process::until(function (): bool {
            $this->fpm->request($this->input(['reportInterval' => 0.3]));
            return $this->daemon->reported('orders', 'success') >= 17 * 40 + 80;
        }, 'all requests are reported');

        $this->daemon->push('orders', [$upstreams[0]->address], [], [], true);
        Process::until(fn (): bool => array_unique($this->fpm->request($input)['results']) === [$upstreams[0]->address], 'the batches of the old generation are forgotten');
        $this->daemon->stop();
        $input['keys'][] = 'new';
        $results = $this->fpm->request(['urls' => array_fill(0, 41, $input['url'])] + $input)['results'];
        self::assertContains(array_pop($results), Upstream::addresses(...$upstreams), 'a new key goes to any endpoint');
        self::assertSame([$upstreams[0]->address], array_values(array_unique($results)));
    }

    public function testWorkersThatNeedABatchAtTheSameTimeWaitForOneCall(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        foreach ([[], ['keys' => ['a']]] as $more) { // the first batch, and that of a key
            $before = $this->picks();
            $this->daemon->signal(SIGSTOP);
            $sent = [];
            for ($i = 0; $i < self::WORKERS; $i++) {
                $sent[] = $this->fpm->send($this->input([], $more));
            }
            usleep(200_000);
            $this->daemon->signal(SIGCONT);
            foreach ($sent as $socket) {
                self::assertSame([$upstream->address], $this->fpm->receive($socket)['results']);
            }
            self::assertLessThan(4, $this->picks() - $before); // one may replace the batch after its response
        }
    }

    public function testForgetsNamesThatLbdDoesNotKnow(): void
    {
        $rejected = fn (): int => $this->daemon->metric('lbd_http_requests_total{code="404",method="GET",route="/v1/pick"}');
        $urls = array_map(static fn (int $i): string => "http://invented-$i.lbd/", range(1, 1100));
        $this->fpm->request($this->input([], ['urls' => [...$urls, ...array_fill(0, 20, $urls[1099])]]));
        self::assertGreaterThanOrEqual(1100, $rejected());
        self::assertLessThan(1110, $rejected(), 'a name that was just refused costs no call');
        $ttls = $this->fpm->request($this->input([], ['entries' => 'invented-']))['ttls'];
        self::assertNotEmpty($ttls);
        self::assertSame([], array_filter($ttls, static fn (int $ttl): bool => $ttl < 1 || $ttl > 5), 'the memory keeps them for seconds');
        $upstream = new Upstream();
        $this->daemon->push('invented-7', [$upstream->address]);
        Process::until(fn (): bool => $this->fpm->request($this->input([], ['urls' => [$urls[6]]]))['results'] === [$upstream->address], 'the cluster is known');
    }

    public function testCountsAtTheClusterOfATarget(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('one', [$upstream->address]);
        $this->daemon->push('two', [$upstream->address]);
        $this->daemon->route('shop', ['/200' => 'two', '/' => 'one']);
        $settings = ['reportInterval' => 0.3, 'hosts' => ['shop.example' => ['target' => 'shop']]];
        $send = fn (string $path): mixed => $this->fpm->request(['url' => "http://shop.example$path"] + $this->input($settings, ['n' => 5]));
        self::assertSame(array_fill(0, 5, $upstream->address), $send('/200')['results']);
        Process::until(function () use ($send): bool {
            $send('/');
            return $this->daemon->reported('one', 'success') > 0 && $this->daemon->reported('two', 'success') === 5;
        }, 'both are reported');
    }

    public function testAPathWithoutARouteHarmsNoOther(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        $this->daemon->route('shop', ['/200' => 'orders']);
        $urls = array_merge(...array_fill(0, 5, ['http://shop.example/none', 'http://shop.example/200']));
        $input = ['urls' => $urls] + $this->input(['maxAge' => 0.2, 'hosts' => ['shop.example' => ['target' => 'shop']]]);
        for ($i = 0; $i < 5; $i++) {
            self::assertSame(array_merge(...array_fill(0, 5, ['Unavailable', $upstream->address])), $this->fpm->request($input)['results']);
        }
    }
}
