<?php

declare(strict_types=1);

namespace Lbd\Tests;

use Lbd\Client;
use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;
use Lbd\Exception\PermissionDenied;
use Lbd\Exception\Unavailable;
use Lbd\Exception\UnknownCluster;
use Lbd\Internal\Asides;
use Lbd\Internal\Batch;
use Lbd\Internal\Budget;
use Lbd\Internal\Connects;
use Lbd\Internal\Counts;
use Lbd\Internal\Deadline;
use Lbd\Internal\Pause;
use Lbd\Internal\Transfers;
use Lbd\Internal\Unreachable;
use PHPUnit\Framework\TestCase;

final class UnitTest extends TestCase
{
    /** @return array<string, mixed> */
    private static function answer(): array
    {
        return [
            'generation' => 7,
            'picks' => [
                ['address' => '10.0.0.1:80', 'cluster' => 'shop', 'hostname' => 'one', 'locality' => ['region' => 'r', 'zone' => 'z', 'sub_zone' => 's'], 'priority' => 3],
                ['address' => '[::1]:80'],
            ],
            'dropped' => ["shed\n\0load" => 2],
            'circuit_broken' => 1,
        ];
    }

    public function testABatchSurvivesTheSharedMemory(): void
    {
        $batch = Batch::ofAnswer('orders', self::answer(), '&hash=a%20b');
        $copy = Batch::decode($batch->encode());
        self::assertNotNull($copy);
        self::assertSame([$batch->elements, 7, '&hash=a%20b'], [$copy->elements, $copy->generation, $copy->query]);
        self::assertEqualsWithDelta($batch->made, $copy->made, 1e-5);
        self::assertEqualsWithDelta($batch->until, $copy->until, 1e-5);
        $results = [];
        foreach ($copy->elements as $i => $element) {
            $chosen = match ($element) {
                '10.0.0.1:80' => ['shop', 'one', 'r', 'z', 's', 3],
                '[::1]:80' => ['orders', '', '', '', '', 0],
                default => null,
            };
            self::assertSame([$chosen, $chosen], [$batch->chosen($i), $copy->chosen($i)]);
            try {
                $results[] = $copy->address($i, 'orders');
            } catch (Dropped | CircuitBroken $error) {
                $results[] = $error->reason;
                self::assertSame('orders', $error->cluster);
            }
        }
        self::assertEqualsCanonicalizing(['10.0.0.1:80', '[::1]:80', 'dropped', 'dropped', 'circuit_broken'], $results);
    }

    public function testKnowsAddresses(): void
    {
        foreach (['10.0.0.1:80', '[::1]:8080', 'orders-1.internal:443'] as $address) {
            self::assertTrue(Batch::isAddress($address), $address);
        }
        foreach ([null, 7, '', 'orders', ':80', '10.0.0.1:', '10.0.0.1:x', '!x:1', "x:1\n", 'x y:1', 'unix:/run/x.sock:1', '10.0.0.1:123456'] as $address) {
            self::assertFalse(Batch::isAddress($address), (string) $address);
        }
    }

    public function testForgetsClustersWithoutRequests(): void
    {
        $client = new Client('http://127.0.0.1:1', 'pick');
        for ($i = 0; $i < 2000; $i++) {
            $client->call("orders$i", 1.0, false);
        }
        $client = new Client('http://127.0.0.1:1');
        for ($i = 0; $i < 2000; $i++) {
            $client->call("orders$i", 1.0, false); // no request takes an endpoint
        }
        $clusters = (fn (): array => $this->clusters)->call($client);
        self::assertCount(1000, $clusters);
        $batch = Batch::ofAnswer('orders', self::answer());
        foreach ($clusters as $cluster) {
            (fn () => [$this->batch, $this->used] = [$batch, Deadline::now()])->call($cluster->source);
        }
        try {
            $client->call('other', 1.0, false);
            self::fail('no error');
        } catch (Unavailable) {
        }
        (fn () => $this->used = -INF)->call($clusters['orders1500']->source);
        $client->call('other', 1.0, false);
        self::assertArrayNotHasKey('orders1500', (fn (): array => $this->clusters)->call($client));
    }

    public function testReplacesABatchAfter80To100PercentOfItsAge(): void
    {
        $ages = [];
        $began = microtime(true);
        for ($i = 0; $i < 200; $i++) {
            $batch = Batch::ofAnswer('orders', self::answer(), '', 10.0);
            $ages[] = $batch->until - $batch->made;
        }
        self::assertGreaterThan(7.99, min($ages));
        self::assertLessThan(8.5, min($ages));
        self::assertLessThan(10.01 + microtime(true) - $began, max($ages));
        self::assertGreaterThan(9.5, max($ages));
    }

    /** Processes of php-fpm share what is known of clusters, whose names may be those that users send. */
    public function testForgetsSharedClustersWithoutRequests(): void
    {
        $process = new Process([PHP_BINARY, '-d', 'apc.enable_cli=1', __DIR__ . '/clusters.php']);
        self::assertSame("too many: 1000\nforgotten: 2 0\n", stream_get_contents($process->stdout));
    }

    public function testShowsNoTokens(): void
    {
        ini_set('zend.exception_ignore_args', '0');
        try {
            new Client('unix:/x', 'turbo', 'hidden');
            self::fail('no error');
        } catch (\ValueError $error) {
            self::assertStringNotContainsString('hidden', print_r($error->getTrace()[0], true));
        } finally {
            ini_set('zend.exception_ignore_args', '1');
        }
        $shown = print_r(new Client('unix:/x', token: 'hidden'), true);
        self::assertStringContainsString('/x', $shown);
        self::assertStringNotContainsString('hidden', $shown);
    }

    public function testEachClientIsAReporter(): void
    {
        $reporter = fn (): string => $this->reporter;
        $names = array_map(static fn (Client $client): string => $reporter->call($client->background), [new Client('unix:/x'), new Client('unix:/x')]);
        self::assertNotSame($names[0], $names[1]);
        self::assertMatchesRegularExpression('~/\d+/[0-9a-f]{8}$~D', $names[0]);
    }

    public function testATransferThatEndsAsItBeginsWaitsForNoOther(): void
    {
        $server = stream_socket_server('tcp://127.0.0.1:0');
        $transfers = new Transfers();
        $ended = [];
        $transfers->start(curl_init('http://' . stream_socket_get_name($server, false)), static function () use (&$ended): void {
            $ended[] = 'the other';
        }, new Deadline(10.0));
        $connection = stream_socket_accept($server);
        stream_set_blocking($connection, false);
        Process::until(static function () use ($transfers, $connection): bool {
            $transfers->advance();
            return fread($connection, 1) !== '';
        }, 'the other request has arrived');
        usleep(300_000); // no timer of its connect is left, which would end the wait
        $transfers->advance();
        $handle = curl_init('file://' . __FILE__);
        curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
        $transfers->start($handle, static function () use (&$ended): void {
            $ended[] = 'this';
        });
        $transfers->wait(20.0);
        self::assertSame(['this'], $ended);
    }

    public function testATransferCannotBeginWithinACallbackOfCurl(): void
    {
        $upstream = new Upstream();
        $transfers = new Transfers();
        $errors = [];
        $start = static function (string $name, ?\Closure $callback) use ($transfers, $upstream, &$errors): void {
            $handle = curl_init("http://$upstream->address/");
            curl_setopt($handle, CURLOPT_WRITEFUNCTION, static function ($_, string $part) use ($callback): int {
                $callback?->__invoke();
                return strlen($part);
            });
            $transfers->start($handle, static function (int $error) use ($name, &$errors): void {
                $errors[$name] = $error;
            });
        };
        $start('outer', static function () use ($start, $transfers): void {
            $start('inner', null);
            $transfers->wait(0.001);
        });
        Process::until(static function () use ($transfers, &$errors): bool {
            $transfers->advance();
            return count($errors) === 2;
        }, 'both transfers have ended');
        self::assertSame(['inner' => CURLE_FAILED_INIT, 'outer' => 0], $errors);
        $start('later', null);
        Process::until(static function () use ($transfers, &$errors): bool {
            $transfers->advance();
            return isset($errors['later']);
        }, 'another transfer has ended');
        self::assertSame(0, $errors['later']);
    }

    public function testKeepsTheMessageOfARefusal(): void
    {
        $batch = Batch::decode(Batch::ofRefusal(new Dropped('all of it', 'orders', 'dropped'))->encode());
        self::assertNotNull($batch);
        self::assertNull($batch->generation);
        $this->expectExceptionObject(new Dropped('all of it', 'orders', 'dropped'));
        $batch->address(0, 'orders');
    }

    public function testRejectsWhatIsNotABatch(): void
    {
        foreach (['', '1.0 2.0 7 ', "1.0 2.0 7 \n", "1.0 2.0 7 \n[]\n", "x 2.0 7 \n[]\n10.0.0.1:80", "1.0 x 7 \n[]\n10.0.0.1:80", "1.0 2.0 7 \n[]\n\n10.0.0.1:80"] as $text) {
            self::assertNull(Batch::decode($text), $text);
        }
        $answers = [[], ['picks' => []] + self::answer(), ['picks' => [['address' => '']]] + self::answer(), ['picks' => [['address' => '!x:1']]] + self::answer(), ['generation' => 'x'] + self::answer(), ['dropped' => 1] + self::answer()];
        unset($answers[1]['dropped'], $answers[1]['circuit_broken']);
        foreach ($answers as $answer) {
            try {
                Batch::ofAnswer('orders', $answer);
                self::fail(json_encode($answer) ?: '');
            } catch (Unreachable $error) {
                self::assertStringContainsString('the answer', $error->getMessage());
            }
        }
    }

    public function testTakesAnotherAddress(): void
    {
        $batch = Batch::ofAnswer('orders', ['dropped' => []] + self::answer());
        self::assertSame('[::1]:80', $batch->elements[(int) $batch->draw(static fn (string $address): bool => $address !== '10.0.0.1:80')]);
        self::assertNull($batch->draw(static fn (): bool => false));
        self::assertEqualsCanonicalizing(['10.0.0.1:80', '[::1]:80'], $batch->addresses());
    }

    public function testKeepsTheSharesOfTheAddressesThatAreNotAvoided(): void
    {
        $picks = [];
        foreach (['a:1' => 10, 'b:1' => 20, 'c:1' => 30, 'd:1' => 40] as $address => $n) {
            array_push($picks, ...array_fill(0, $n, ['address' => $address]));
        }
        $batch = Batch::ofAnswer('orders', ['generation' => 7, 'picks' => $picks]);
        $asides = new Asides();
        $asides->failed('d:1', false, 2);
        $taken = [];
        for ($i = 0; $i < 600; $i++) {
            $taken[] = $batch->elements[$batch->take(null, $asides)];
        }
        self::assertEqualsCanonicalizing(['a:1' => 100, 'b:1' => 200, 'c:1' => 300], array_count_values($taken));
        $drawn = array_count_values(array_map(static fn (): string => $batch->elements[(int) $batch->draw(static fn (): bool => true)], range(1, 2000)));
        self::assertGreaterThan(2 * $drawn['a:1'], $drawn['d:1']);
    }

    public function testABatchHasThePicksOfTwoSeconds(): void
    {
        $batch = Batch::decode(sprintf("%.6F 1.0 7 \n[]\na:1", Deadline::now() - 10));
        foreach ([0 => 20, 500 => 100, 5000 => 1000, 9000 => 1000] as $requests => $n) {
            self::assertEqualsWithDelta($n, $batch?->next($requests), 0.05 * $n);
        }
    }

    /** @return iterable<string, array{bool}> */
    public function memories(): iterable
    {
        yield 'of a process' => [false];
        yield 'of all' => [true];
    }

    /** @dataProvider memories */
    public function testSetsAddressesAside(bool $shared): void
    {
        $process = new Process([PHP_BINARY, '-d', 'apc.enable_cli=1', '-d', 'zend.assertions=1', __DIR__ . '/asides.php', (string) (int) $shared], 'php://stderr');
        self::assertSame("done\n", stream_get_contents($process->stdout));
    }

    public function testAConnectHasThreeTimesTheUsual(): void
    {
        $connects = new Connects('orders', null);
        foreach ([[0.01, 0.25], [0.4, 1.2], ...array_fill(0, 15, [0.002, 1.2]), [0.0, 1.2], [0.002, 0.25]] as [$took, $limit]) {
            $connects->add($took);
            self::assertEqualsWithDelta($limit, $connects->limit(), 1e-9);
        }
    }

    /** Processes of php-fpm change the same entries of APCu at the same time. */
    public function testProcessesShareMemory(): void
    {
        $process = new Process([PHP_BINARY, '-d', 'apc.enable_cli=1', __DIR__ . '/shared.php'], 'php://stderr');
        self::assertSame("busy: [true,true,true,true,true,true,true,true,true,true,false,false,true,11000]\nbudget: 0 refused, none missing\ncounts: 1, 0 negative\ntrials: 1\n", stream_get_contents($process->stdout));
    }

    public function testTheBudgetPermitsRetriesUntilHalfOfTheTokensAreLeft(): void
    {
        $budget = new Budget(10);
        $budget->succeeded(); // never more than all
        self::assertSame([true, true, true, true, false], array_map(static fn (): bool => $budget->failed(), range(1, 5)));
        for ($i = 0; $i < 11; $i++) {
            $budget->succeeded();
        }
        self::assertSame([true, false], [$budget->failed(), $budget->failed()], 'of 6.1 tokens');
        self::assertSame([true, false, false], [$budget->failed(200), $budget->failed(20), $budget->failed(100)], 'twice as many for batches of 200 picks');
    }

    public function testCountsTheTimeInFlightWithinTheInterval(): void
    {
        $counts = new Counts();
        $begin = $counts->begin('a:1');
        usleep(20_000);
        [, $first] = $counts->take();
        self::assertSame(0, $first['a:1']->requests);
        self::assertGreaterThan(0.019, $first['a:1']->inFlightSeconds);
        $counts->ended('a:1', 'error', $begin);
        $counts->finished('a:1');
        $all = Deadline::now() - $begin;
        [$since, $second] = $counts->take();
        self::assertSame([1, 1, 0], [$second['a:1']->requests, $second['a:1']->errors, $second['a:1']->cancelled]);
        self::assertGreaterThan($first['a:1']->inFlightSeconds, $second['a:1']->latency);
        self::assertGreaterThan(0.0, $second['a:1']->inFlightSeconds);
        self::assertLessThanOrEqual($all, $first['a:1']->inFlightSeconds + $second['a:1']->inFlightSeconds);
        self::assertSame([], $counts->take()[1]);
        $counts->giveBack($since, $second);
        self::assertSame(1, $counts->take()[1]['a:1']->errors);
        $counts->giveBack($since - Counts::MAX_AGE, $second);
        self::assertSame([], $counts->take()[1]);
    }

    public function testThePauseGrows(): void
    {
        foreach ([1 => 0.1, 2 => 0.2, 3 => 0.4, 7 => 5.0, 1000 => 5.0] as $failures => $seconds) {
            self::assertEqualsWithDelta($seconds, Pause::after($failures), $seconds * 0.201);
        }
        self::assertEqualsWithDelta(20.0, Pause::after(1, 20.0), 0.001);
        self::assertEqualsWithDelta(60.0, Pause::after(1, 1e9), 0.001);
    }

    public function testHasAnExceptionForEachCode(): void
    {
        $cases = [
            [503, ['code' => 'dropped', 'detail' => 'x', 'category' => 'shed'], Dropped::class, 'dropped', 'cluster orders: x (dropped: shed)'],
            [503, ['code' => 'circuit_broken', 'title' => 'x'], CircuitBroken::class, 'circuit_broken', 'cluster orders: x (circuit_broken)'],
            [404, ['code' => 'unknown_cluster'], UnknownCluster::class, 'unknown_cluster', 'cluster orders: status 404 (unknown_cluster)'],
            [401, [], PermissionDenied::class, '401', 'cluster orders: status 401'],
            [403, ['code' => 'permission_denied'], PermissionDenied::class, 'permission_denied', 'cluster orders: status 403 (permission_denied)'],
            [503, ['code' => 'no_ready_endpoint'], Unavailable::class, 'no_ready_endpoint', 'cluster orders: status 503 (no_ready_endpoint)'],
            [429, ['code' => ['x']], Unavailable::class, '429', 'cluster orders: status 429'],
        ];
        foreach ($cases as [$status, $problem, $class, $reason, $message]) {
            $error = LbdException::ofAnswer('orders', $status, $problem, 2.0);
            self::assertSame([$class, $reason, $message, 2.0], [$error::class, $error->reason, $error->getMessage(), $error->retryAfter]);
            self::assertEquals($error->reason, $error->again()->reason);
        }
    }

    public function testKnowsTheHostsOfClusters(): void
    {
        $client = new Client('http://127.0.0.1:1', hosts: ['shop.test' => 'eu/orders']);
        $cases = ['orders.lbd' => 'orders', 'eu.orders.lbd' => 'eu.orders', 'shop.test' => 'eu/orders', 'lbd' => null, '.lbd' => null, 'orders.lbd.example' => null, '' => null];
        foreach ($cases as $host => $cluster) {
            self::assertSame($cluster, $client->host($host)?->name, $host);
        }
        self::assertSame('orders', $client->host('Orders.LBD')?->name);
        self::assertSame('x', (new Client('unix:/x', hosts: ['Shop.test' => 'x']))->host('SHOP.Test')?->name);
        self::assertSame('x', (new Client('unix:/x', hosts: static fn (string $host): ?string => $host))->host('x')?->name);
    }

    public function testPrefersTheTokenOfTheProgram(): void
    {
        $file = (string) tempnam(sys_get_temp_dir(), 'lbd');
        file_put_contents($file, "of the program\n");
        putenv('LBD_TOKEN=of the environment');
        try {
            $token = fn (): string => $this->token ?? $this->readToken();
            $tokenOf = static fn (Client $client): string => $token->call((fn () => $this->api)->call($client));
            self::assertSame('of the environment', $tokenOf(new Client('unix:/x')));
            self::assertSame('of the program', $tokenOf(new Client('unix:/x', tokenFile: $file)));
            self::assertSame('x', $tokenOf(new Client('unix:/x', token: 'x')));
        } finally {
            putenv('LBD_TOKEN');
            unlink($file);
        }
    }

    public function testRejectsSettings(): void
    {
        foreach ([['lbd' => 'ftp://x'], ['lbd' => 'localhost:8080'], ['lbd' => "http://x\n"], ['mode' => 'turbo'], ['lbd' => 'http://x/path']] as $settings) {
            try {
                new Client(...$settings);
                self::fail(json_encode($settings) ?: '');
            } catch (\ValueError $error) {
                self::assertStringContainsString(array_key_first($settings) . ':', $error->getMessage());
            }
        }
    }
}
