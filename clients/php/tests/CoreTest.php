<?php

declare(strict_types=1);

namespace Lbd\Tests;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\ConnectionFailed;
use Lbd\Exception\Unavailable;
use Lbd\Internal\Deadline;

/** What is special about Client::request, and the same for all libraries. */
final class CoreTest extends RequestTestCase
{
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

    public function testTrustsTheCertificatesOfASetting(): void
    {
        $file = tempnam(sys_get_temp_dir(), 'lbd') ?: '';
        exec("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=tls.lbd -addext subjectAltName=DNS:tls.lbd -keyout $file.key -out $file 2>&1", $output, $status);
        self::assertSame(0, $status, implode("\n", $output));
        file_put_contents($file, file_get_contents("$file.key"), FILE_APPEND);
        $upstream = new Upstream('200', $file);
        self::$daemon->push('tls', [$upstream->address]);
        try {
            self::assertSame($upstream->address, $this->client(['upstreamCa' => $file])->request('GET', 'https://tls.lbd/')->body);
            $this->client()->request('GET', 'https://tls.lbd/');
            self::fail('no error');
        } catch (ConnectionFailed $error) {
            self::assertStringContainsString('certificate', $error->getMessage());
        } finally {
            array_map(unlink(...), [$file, "$file.key"]);
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
        foreach ([['GET', 'orders.lbd'], ['GET', 'ftp://orders.lbd/'], ['GET', "http://orders.lbd/\r\n"], ["GET / HTTP/1.1\r\n", 'http://orders.lbd/'], ['GET', 'http://orders.lbd/', '', ["A\r\nB" => 'x']], ['GET', 'http://orders.lbd/', '', ['A' => "x\ny"]]] as $arguments) {
            try {
                $client->request(...$arguments);
                self::fail(json_encode($arguments) ?: '');
            } catch (\ValueError $error) {
                self::assertStringContainsString('not ', $error->getMessage());
            }
        }
    }

    public function testKeepsPasswordsOutOfMessages(): void
    {
        $bad = new Upstream('reset');
        self::$daemon->push('password', [$bad->address]);
        foreach (['http://me:hidden@password.lbd/a?b@c', 'ftp://me:hidden@password.lbd/'] as $url) {
            try {
                $this->client()->request('GET', $url);
                self::fail('no error');
            } catch (ConnectionFailed | \ValueError $error) {
                self::assertStringContainsString('//password.lbd/', $error->getMessage());
                self::assertStringNotContainsString('hidden', $error->getMessage());
            }
        }
    }

    public function testSendsARequestThatIsLongerThanALease(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('long', [$upstream->address]);
        $client = $this->client(['mode' => 'lease', 'ttl' => 3600.0]);
        self::assertSame(200, $client->request('GET', 'http://long.lbd/', timeout: 3600.0)->status);
    }

    public function testGetsABatchAfterALongPause(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('pause', [$upstream->address]);
        $client = $this->client(['maxAge' => 0.1, 'staleFor' => 0.3]);
        self::assertSame(200, $client->request('GET', 'http://pause.lbd/')->status);
        usleep(1_400_000); // beyond the timeout of the call that follows the cluster
        self::assertSame(200, $client->request('GET', 'http://pause.lbd/')->status);
    }

    public function testGetsABatchIfTheDaemonDidNotAnswerInAPause(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('hung', [$upstream->address]);
        $client = $this->client(['maxAge' => 0.1, 'staleFor' => 0.2]);
        self::assertSame(200, $client->request('GET', 'http://hung.lbd/')->status);
        self::$daemon->signal(SIGSTOP);
        usleep(1_400_000); // beyond the timeout of the call that follows the cluster
        $continue = new Process(['sh', '-c', 'sleep 0.3; kill -CONT ' . self::$daemon->pid()]);
        self::assertSame(200, $client->request('GET', 'http://hung.lbd/')->status);
        $continue->wait();
    }

    public function testReportsOnceIfTheAnswerIsReadLate(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('late', [$upstream->address]);
        $client = $this->client(['reportInterval' => 0.1]);
        $client->request('GET', 'http://late.lbd/');
        self::$daemon->signal(SIGSTOP);
        try {
            $client->tick(0.3); // sends a report
        } finally {
            self::$daemon->signal(SIGCONT);
        }
        Process::until(static fn (): bool => self::$daemon->reported('late', 'success') === 1, 'the report has arrived');
        usleep(1_000_000); // beyond the timeout of the report
        $client->tick();
        $client->close();
        self::assertSame(1, self::$daemon->reported('late', 'success'));
    }

    public function testReportsOnceIfTheDaemonHangsAtTheEnd(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('last-report', [$upstream->address]);
        $client = $this->client();
        $client->request('GET', 'http://last-report.lbd/');
        self::$daemon->signal(SIGSTOP);
        try {
            $client->end(1.5); // the call for the report ends before
        } finally {
            self::$daemon->signal(SIGCONT);
        }
        Process::until(static fn (): bool => self::$daemon->reported('last-report', 'success') > 0, 'the report has arrived');
        $client->close();
        self::assertSame(1, self::$daemon->reported('last-report', 'success'));
    }

    public function testSaysWhyThereIsNoEndpointYet(): void
    {
        $daemon = new Daemon('tcp');
        $daemon->push('connecting', [$this->silent()]);
        $upstream = new Upstream();
        try {
            $this->client(['lbd' => $daemon->lbd, 'fallback' => $upstream->address])->request('GET', 'http://connecting.lbd/');
            self::fail('no error');
        } catch (Unavailable $error) {
            self::assertSame('pick_timeout', $error->reason);
        }
    }

    public function testWhatIsNotAnAnswerOfLbdIsNoRejection(): void
    {
        $upstream = new Upstream();
        foreach (['404', '429', '503'] as $status) {
            $lbd = new Upstream($status);
            $client = $this->client(['lbd' => "http://$lbd->address", 'fallback' => $upstream->address]);
            $result = $status === '429' ? Unavailable::class : '';
            self::assertSame($result, self::errorOf(self::sender('core', $client), 'orders'), $status);
        }
    }

    public function testDoesNotFloodTheDaemonIfTheClusterAlwaysChanges(): void
    {
        $lbd = new Upstream('flapping');
        $client = $this->client(['lbd' => "http://$lbd->address"]);
        $began = microtime(true);
        $client->request('GET', 'http://orders.lbd/');
        while (microtime(true) - $began < 0.5) {
            $client->tick();
        }
        $batches = preg_grep('~^/v1/pick~', array_column($lbd->requests(), 'path'));
        self::assertGreaterThan(1, count($batches));
        self::assertLessThan(2 + (microtime(true) - $began) / 0.1, count($batches));
    }

    public function testDoesNotFollowAClusterAfterClose(): void
    {
        $lbd = new Upstream('flapping');
        $client = $this->client(['lbd' => "http://$lbd->address"]);
        $attempt = $client->call('orders', 10.0, false)->first();
        $client->close();
        $calls = count($lbd->requests());
        $attempt->finish();
        $client->tick(0.2);
        self::assertCount($calls, $lbd->requests());
    }

    public function testTellsLbdAtOnceAndAsksAgainForWhatIsSetAside(): void
    {
        $lbd = new Upstream('excluding');
        $client = $this->client(['lbd' => "http://$lbd->address", 'mode' => 'pick']);
        foreach ([[false], [true, false]] as $excluded) {
            $before = count($lbd->requests());
            try {
                $client->request('POST', 'http://orders.lbd/', 'x');
                self::fail('no error');
            } catch (ConnectionFailed) {
            }
            $client->tick(0.1);
            $calls = array_slice($lbd->requests(), $before);
            $picks = array_values(preg_grep('~^/v1/pick~', array_column($calls, 'path')));
            $expected = array_pad($excluded, count($picks), true); // then it asks again, until there is another endpoint
            self::assertSame($expected, array_map(static fn (string $path): bool => str_contains($path, 'exclude='), $picks));
            self::assertGreaterThan(count($excluded) + 2, count($picks));
            $reports = array_values(array_filter($calls, static fn (array $call): bool => $call['path'] === '/v1/reports'));
            self::assertCount(1, $reports);
            $report = json_decode($reports[0]['body'], true);
            self::assertSame([['cluster' => 'orders', 'endpoints' => [['address' => '127.0.0.1:1', 'connect_failures' => 1]]]], $report['clusters']);
            self::assertArrayNotHasKey('interval', $report);
            (fn () => $this->known['127.0.0.1:1']['until'] += 60)->call((fn () => $this->clusters['orders']->asides)->call($client));
        }
    }

    public function testConnectsWithMoreTimeIfThereIsNoOtherEndpoint(): void
    {
        $address = $this->silent();
        foreach (['batch', 'pick', 'lease'] as $mode) {
            self::$daemon->push("far-$mode", [$address]);
            $call = $this->client(['mode' => $mode, 'retries' => 0])->call("far-$mode", 10.0, false);
            $first = $call->first();
            self::assertSame(0.25, $first->connectTimeout);
            $first->unsent(true);
            $second = $call->retry();
            self::assertSame([$address, 5.0], [$second?->address, $second?->connectTimeout]);
            $second?->unsent(true);
            self::assertNull($call->retry());
        }
    }

    public function testAsksForFewerPicksIfLbdDoesNotPermitMore(): void
    {
        $lbd = new Upstream('quota');
        $client = $this->client(['lbd' => "http://$lbd->address", 'maxAge' => 0.2]);
        $n = [];
        Process::until(static function () use ($client, $lbd, &$n): bool {
            for ($i = 0; $i < 1000; $i++) {
                $client->call('orders', 10.0, false)->first()->finish();
            }
            preg_match_all('/&n=(\d+)/', implode(' ', array_column($lbd->requests(), 'path')), $match);
            $n = array_map(intval(...), $match[1]);
            return max($n) > 100 && end($n) <= 100;
        }, 'a batch is larger, and then not');
        self::assertSame(100, $n[0]);
    }

    public function testKeepsALeaseThatCannotBeRenewedNow(): void
    {
        $lbd = new Upstream('busy');
        $client = $this->client(['lbd' => "http://$lbd->address", 'mode' => 'lease']);
        $client->background->leases->hold('x', 0.2, new Deadline(null));
        $client->tick(0.3);
        $client->background->leases->end('x', 'success');
        $client->tick(0.1);
        $calls = array_column($lbd->requests(), 'path');
        self::assertSame('/v1/leases/x/renew?ttl=200ms', $calls[0]);
        self::assertContains('/v1/leases/done', $calls);
    }

    public function testTriesARenewalAgainThatFailed(): void
    {
        $lbd = new Upstream('busy');
        $client = $this->client(['lbd' => "http://$lbd->address", 'mode' => 'lease']);
        $leases = $client->background->leases;
        $leases->hold('x', 3600.0, new Deadline(null));
        (fn () => $this->held['x']['renewAt'] = $this->renewAt = 0.0)->call($leases);
        $next = fn (): float => $this->renewAt - Deadline::now();
        Process::until(static function () use ($client, $next, $leases): bool {
            $client->tick(0.01);
            return $next->call($leases) < 2.0;
        }, 'it is tried again soon');
        self::assertSame(['/v1/leases/x/renew?ttl=3600000ms'], array_unique(array_column($lbd->requests(), 'path')));
    }

    public function testBlamesNoEndpointForADeadlineThatPassedBefore(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('overdue', [$upstream->address]);
        foreach (['batch', 'lease'] as $mode) {
            $client = $this->client(['mode' => $mode, 'fallback' => $upstream->address]);
            self::assertSame(200, $client->request('GET', 'http://overdue.lbd/')->status);
            try {
                $client->call('overdue', 0.0, true)->first();
                self::fail('no error');
            } catch (Unavailable $error) {
                self::assertStringContainsString('no time was left', $error->getMessage());
            }
            self::assertSame([], (fn (): array => $this->held)->call($client->background->leases));
            Process::until(static function () use ($client): bool {
                $client->tick(0.01);
                return self::$daemon->inFlight('overdue') === 0;
            }, 'the lease has ended');
            $client->close();
        }
        foreach (['success' => 1, 'error' => 0, 'cancelled' => 0] as $outcome => $count) {
            self::assertSame($count, self::$daemon->metric("lbd_reported_requests_total{cluster=\"overdue\",outcome=\"$outcome\"}"));
        }
        self::assertSame(1, self::$daemon->metric('lbd_leases_finished_total{cluster="overdue",outcome="cancelled"}'));
    }

    public function testEndsTheLeaseOfARequestThatWasForgotten(): void
    {
        $lbd = new Upstream('busy');
        $client = $this->client(['lbd' => "http://$lbd->address", 'mode' => 'lease']);
        $client->background->leases->hold('x', 0.2, new Deadline(0.05));
        $client->tick(0.3);
        self::assertSame(['/v1/leases/done'], array_column($lbd->requests(), 'path'));
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

    public function testTheFallbackIsNotForAClusterWithoutEndpoints(): void
    {
        $upstream = new Upstream();
        [$host, $port] = explode(':', $upstream->address);
        $endpoint = ['health_status' => 'UNHEALTHY', 'endpoint' => ['address' => ['socket_address' => ['address' => $host, 'port_value' => (int) $port]]]];
        self::$daemon->call('PUT', '/v1/clusters/ill/endpoints?allow_empty=true', ['endpoints' => [['lb_endpoints' => [$endpoint]]]]);
        foreach (['batch', 'pick', 'lease'] as $mode) {
            try {
                $this->client(['mode' => $mode, 'fallback' => $upstream->address])->request('GET', 'http://ill.lbd/', timeout: 0.2);
                self::fail('no error');
            } catch (Unavailable $error) {
                self::assertSame('no_ready_endpoint', $error->reason);
            }
        }
        self::assertSame([], $upstream->requests());
    }

    public function testFollowsTheCluster(): void
    {
        [$old, $new] = [new Upstream(), new Upstream()];
        self::$daemon->push('follows', [$old->address]);
        $client = $this->client(['maxAge' => 3600.0]);
        self::assertSame($old->address, $client->request('GET', 'http://follows.lbd/')->body);
        self::$daemon->push('follows', [$new->address]);
        Process::until(static fn (): bool => $client->request('GET', 'http://follows.lbd/')->body === $new->address, 'the batch has the new endpoint');
    }

    public function testSurvivesARestartOfTheDaemon(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('restarts', [$upstream->address]);
        $client = $this->client(['maxAge' => 0.1]);
        $client->request('GET', 'http://restarts.lbd/');
        self::$daemon->stop();
        try {
            for ($i = 0; $i < 5; $i++) {
                self::assertSame($upstream->address, $client->request('GET', 'http://restarts.lbd/')->body);
                $client->tick(0.1);
            }
        } finally {
            self::$daemon->start();
        }
        $new = new Upstream();
        self::$daemon->push('restarts', [$new->address]);
        Process::until(static fn (): bool => $client->request('GET', 'http://restarts.lbd/')->body === $new->address, 'the batch has the new endpoint');
    }
}
