<?php

declare(strict_types=1);

namespace Lbd\Tests;

use Lbd\Internal\Api;

/** Scripts that a real php-fpm runs. */
final class FpmTest extends FpmTestCase
{
    public function testWorkersShareOneBatch(): void
    {
        $upstreams = [new Upstream(), new Upstream()];
        $this->daemon->push('orders', Upstream::addresses(...$upstreams));
        $this->fpm->request($this->input());
        $began = microtime(true);
        $answers = $this->parallel(200, $this->input());
        $results = array_count_values(array_merge(...array_column($answers, 'results')));
        self::assertEqualsCanonicalizing(Upstream::addresses(...$upstreams), array_keys($results));
        self::assertGreaterThan(40, min($results));
        self::assertGreaterThan(2, count(array_unique(array_column($answers, 'pid'))));
        $most = 2 + (int) (microtime(true) - $began); // one each second
        self::assertGreaterThan(0, $this->picks());
        self::assertLessThanOrEqual($most, $this->picks());
    }

    public function testReplacesTheBatchAfterTheResponse(): void
    {
        [$old, $new] = [new Upstream(), new Upstream()];
        $this->daemon->push('orders', [$old->address]);
        $this->fpm->request($this->input());
        $this->daemon->push('orders', [$new->address]);
        $answers = [];
        Process::until(function () use ($new, &$answers): bool {
            $answers[] = $answer = $this->fpm->request($this->input());
            return $answer['results'] === [$new->address];
        }, 'the batch has the new endpoint');
        self::assertSame([$old->address], $answers[0]['results'], 'the first request uses the batch that is there');
    }

    public function testNoRequestWaitsForAHangingDaemon(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        $input = $this->input(['maxAge' => 0.5]);
        $this->fpm->request($input);
        $this->daemon->signal(SIGSTOP);
        try {
            $end = microtime(true) + 2.5; // the batch is to be replaced after 0.5 s
            while (microtime(true) < $end) {
                $answer = $this->fpm->request($input);
                self::assertSame([$upstream->address], $answer['results']);
                self::assertLessThan(Api::CALL_TIMEOUT, $answer['seconds']);
            }
        } finally {
            $this->daemon->signal(SIGCONT);
        }
    }

    public function testReportsWhatAllWorkersCounted(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        $this->daemon->push('other', [$upstream->address]);
        $settings = ['reportInterval' => 0.3];
        $this->parallel(40, $this->input($settings));
        $this->parallel(10, ['url' => 'http://orders.lbd/500'] + $this->input($settings));
        Process::until(function () use ($settings): bool {
            $this->fpm->request(['url' => 'http://other.lbd/'] + $this->input($settings));
            return $this->daemon->reported('orders', 'success') + $this->daemon->reported('orders', 'error') >= 50;
        }, 'reports have all requests');
        $before = $this->daemon->reported('other', 'success');
        Process::until(function () use ($settings, $before): bool {
            $this->fpm->request(['url' => 'http://other.lbd/'] + $this->input($settings));
            return $this->daemon->reported('other', 'success') > $before;
        }, 'another report arrives');
        self::assertSame([40, 10], [$this->daemon->reported('orders', 'success'), $this->daemon->reported('orders', 'error')]);
    }

    public function testReportsErrorsEarly(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        $settings = ['reportInterval' => 300.0];
        $this->fpm->request($this->input($settings)); // the interval begins
        for ($i = 0; $i < 5; $i++) {
            self::assertSame(['500'], $this->fpm->request(['url' => 'http://orders.lbd/500'] + $this->input($settings))['results']);
        }
        Process::until(function () use ($settings): bool {
            $this->fpm->request($this->input($settings));
            return $this->daemon->reported('orders', 'error') === 5;
        }, 'the errors are reported');
    }

    public function testWaitsForAnotherPriority(): void
    {
        $this->daemon = new Daemon('tcp');
        [$first, $second] = [new Upstream(), new Upstream()];
        $this->daemon->push('orders', [$first->address], [], [$second->address]);
        self::assertSame([$first->address], $this->fpm->request($this->input())['results']);
        unset($first);
        self::assertSame([$second->address], $this->fpm->request($this->input())['results']);
    }

    public function testKeepsCountsWhileTheDaemonRestarts(): void
    {
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        $settings = ['reportInterval' => 0.2];
        $this->fpm->request($this->input($settings));
        $this->daemon->stop();
        for ($i = 0; $i < 20; $i++) {
            self::assertSame([$upstream->address], $this->fpm->request($this->input($settings))['results']);
        }
        $this->daemon->start();
        $new = new Upstream();
        $this->daemon->push('orders', [$new->address]);
        $sent = 21;
        Process::until(function () use ($settings, $new, &$sent): bool {
            $sent++;
            return $this->fpm->request($this->input($settings))['results'] === [$new->address];
        }, 'the batch has the new endpoint');
        $this->daemon->push('other', [$new->address]);
        Process::until(function () use ($settings): bool {
            $this->fpm->request(['url' => 'http://other.lbd/'] + $this->input($settings));
            return $this->daemon->reported('orders', 'success') >= 1;
        }, 'a report arrives');
        self::assertLessThanOrEqual($sent, $this->daemon->reported('orders', 'success'));
    }

    public function testSaysSoonThatTheDaemonIsGone(): void
    {
        $this->daemon->stop();
        foreach ($this->parallel(16, $this->input()) as $answer) {
            self::assertSame(['Unavailable'], $answer['results']);
            self::assertLessThan(Api::CALL_TIMEOUT, $answer['seconds']);
        }
        $this->daemon->start();
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        Process::until(fn (): bool => $this->fpm->request($this->input())['results'] === [$upstream->address], 'requests work again');
    }

    public function testOneProcessAtATimeWaitsForAHangingDaemon(): void
    {
        $this->daemon->signal(SIGSTOP);
        try {
            $this->fpm->request($this->input()); // knows the error now
            $waited = 0;
            foreach ($this->parallel(self::WORKERS, $this->input()) as $answer) {
                self::assertSame(['Unavailable'], $answer['results']);
                $waited += (int) ($answer['seconds'] > 0.5);
            }
            self::assertLessThanOrEqual(1, $waited);
        } finally {
            $this->daemon->signal(SIGCONT);
        }
    }

    public function testWorkersShareTheBudgetOfRetries(): void
    {
        $upstreams = [new Upstream('503'), new Upstream('503'), new Upstream('503')];
        $this->daemon->push('orders', Upstream::addresses(...$upstreams));
        for ($i = 0; $i < 20; $i++) {
            self::assertSame(['503'], $this->fpm->request($this->input(['maxTokens' => 10]))['results']);
        }
        $tries = array_sum(array_map(static fn (Upstream $upstream): int => count($upstream->requests()), $upstreams));
        self::assertSame(23, $tries, '3 retries of 10 tokens');
    }

    /** RATE=full sends 100,000 requests. */
    public function testFewErrorsAreVisible(): void
    {
        $upstreams = array_map(static fn (): Upstream => new Upstream('failing'), range(1, 4));
        $this->daemon->push('orders', Upstream::addresses(...$upstreams));
        $n = getenv('RATE') === 'full' ? 100_000 : 20_000;
        $visible = [];
        foreach ($this->parallel(intdiv($n, 10), $this->input([], ['n' => 10])) as $answer) {
            array_push($visible, ...array_diff($answer['results'], Upstream::addresses(...$upstreams)));
        }
        self::assertLessThan($n / 10_000, count($visible), json_encode($visible)); // three tries fail for one of 1,000,000
        $tries = array_sum(array_map(static fn (Upstream $upstream): int => count($upstream->requests()), $upstreams));
        self::assertGreaterThan(1.005 * $n, $tries);
    }

    public function testWorkersShareWhatIsSetAside(): void
    {
        $upstream = new Upstream();
        $server = stream_socket_server('tcp://127.0.0.1:0');
        $refuses = (string) stream_socket_get_name($server, false);
        fclose($server);
        $this->daemon->push('orders', [$upstream->address, $refuses]);
        foreach ($this->parallel(200, $this->input()) as $answer) {
            self::assertSame([$upstream->address], $answer['results']);
        }
        $failures = fn (): int => $this->daemon->metric('lbd_reported_connect_failures_total{cluster="orders"}');
        self::assertGreaterThan(0, $failures());
        self::assertLessThan(60, $failures(), 'of 100 picks, with a trial each second');
        self::assertSame(0, $this->daemon->reported('orders', 'error'));
    }

    public function testABudgetIsForOneSizeOfIt(): void
    {
        $upstreams = [new Upstream('503'), new Upstream('503')];
        $this->daemon->push('orders', Upstream::addresses(...$upstreams));
        $send = fn (int $tokens, string $path): mixed => $this->fpm->request(['url' => "http://orders.lbd$path"] + $this->input(['maxTokens' => $tokens]));
        $tries = static fn (): int => array_sum(array_map(static fn (Upstream $upstream): int => count($upstream->requests()), $upstreams));
        $send(4, '/');
        $send(4, '/');
        self::assertSame(3, $tries(), '1 retry of 4 tokens');
        $send(1, '/200'); // as an application with other settings does
        $send(4, '/');
        self::assertSame(5, $tries(), 'no retry');
    }

    public function testTheEndOfAScriptTakesASecondHoweverManyClustersItHas(): void
    {
        $upstream = new Upstream();
        $settings = ['finishRequest' => false, 'maxAge' => 0.05, 'reportInterval' => 0.05];
        $urls = [];
        for ($i = 0; $i < 5; $i++) {
            $this->daemon->push("orders$i", [$upstream->address]);
            $urls[] = "http://orders$i.lbd/";
        }
        $this->fpm->request($this->input($settings, ['urls' => $urls]));
        $this->fpm->request($this->input($settings, ['urls' => $urls]));
        usleep(100_000); // a new batch and a report are due
        $this->daemon->signal(SIGSTOP);
        try {
            $began = microtime(true);
            self::assertSame(array_fill(0, 5, $upstream->address), $this->fpm->request($this->input($settings, ['urls' => $urls]))['results']);
            self::assertLessThan(5 * Api::CALL_TIMEOUT, microtime(true) - $began);
        } finally {
            $this->daemon->signal(SIGCONT);
        }
    }

    /** @return iterable<string, array{string, list<mixed>, list<string>}> */
    public function endings(): iterable
    {
        yield 'exit' => ['Lbd\Tests\Endings::leave', [], []];
        yield 'exception' => ['intdiv', [1, 0], []];
        yield 'fatal error' => ['Lbd\Tests\Endings::undefined', [], []];
        yield 'memory exhausted' => ['str_repeat', ['x', 1 << 30], ['-d', 'memory_limit=64M']];
        yield 'max_execution_time' => ['Lbd\Tests\Endings::loop', [], ['-d', 'max_execution_time=1']];
    }

    /**
     * @dataProvider endings
     * @param list<mixed> $arguments
     * @param list<string> $options
     */
    public function testEndsLeasesHoweverTheScriptEnds(string $end, array $arguments, array $options): void
    {
        $this->fpm = new Fpm(1, ...$options);
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        $this->fpm->request($this->input(['mode' => 'lease'], ['n' => 3, 'hold' => 'orders', 'end' => $end, 'arguments' => $arguments]));
        $ended = fn (string $outcome): int => $this->daemon->metric("lbd_leases_finished_total{cluster=\"orders\",outcome=\"$outcome\"}");
        Process::until(static fn (): bool => $ended('success') + $ended('cancelled') === 4, 'all leases are ended');
        self::assertSame(1, $ended('cancelled'));
        self::assertSame(0, $this->daemon->inFlight('orders'));
    }

    public function testPicksForEachRequestWithoutApcu(): void
    {
        $this->fpm = new Fpm(2, '-d', 'apc.enabled=0');
        $upstream = new Upstream();
        $this->daemon->push('orders', [$upstream->address]);
        for ($i = 0; $i < 3; $i++) {
            self::assertSame([$upstream->address, $upstream->address], $this->fpm->request($this->input([], ['n' => 2]))['results']);
        }
        self::assertSame(6, $this->picks());
    }
}
