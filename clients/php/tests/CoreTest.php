<?php

declare(strict_types=1);

namespace Lbd\Tests;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Unavailable;

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
