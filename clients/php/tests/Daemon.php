<?php

declare(strict_types=1);

namespace Lbd\Tests;

use Lbd\Exception\LbdException;
use Lbd\Internal\Api;
use Lbd\Internal\Unreachable;

/** A real lbd that listens on a unix socket. */
final class Daemon
{
    public readonly string $lbd;
    private readonly string $directory;
    private ?Process $process = null;

    /** @param string $connect how it connects to endpoints */
    public function __construct(private readonly string $connect = 'none')
    {
        $this->directory = sys_get_temp_dir() . '/lbd-' . bin2hex(random_bytes(4));
        mkdir($this->directory, 0700);
        $this->lbd = "unix:$this->directory/lbd.sock";
        $this->start();
    }

    public function start(): void
    {
        $binary = getenv('LBD_BIN') ?: __DIR__ . '/../../../bin/lbd';
        $log = "$this->directory/lbd.log";
        $this->process = new Process([$binary, 'serve', "--listen=$this->lbd", "--data=$this->directory/data", "--connect=$this->connect"], $log);
        Process::until(function () use ($log): bool {
            if (!$this->process?->running()) {
                throw new \RuntimeException('lbd ended: ' . file_get_contents($log));
            }
            try {
                return $this->call('GET', '/v1/daemon') !== [];
            } catch (Unreachable) {
                return false;
            }
        }, 'lbd is ready');
    }

    public function signal(int $signal): void
    {
        $this->process?->signal($signal);
    }

    public function pid(): int
    {
        return $this->process?->pid() ?? 0;
    }

    public function stop(): void
    {
        $this->signal(SIGTERM);
        $this->process?->wait();
    }

    /**
     * @param ?array<string, mixed> $body
     * @return array<mixed>
     * @throws Unreachable|LbdException
     */
    public function call(string $method, string $path, ?array $body = null): array
    {
        return (new Api($this->lbd, '', '', ''))->call($method, $path, $body, '', 5.0);
    }

    /**
     * Pushes the endpoints of a cluster, which are all that it has from now on.
     *
     * @param list<string> $addresses
     * @param array<string, mixed> $policy
     * @param list<string> $others those of priority 1
     * @param bool $ring whether its policy is ring_hash
     */
    public function push(string $cluster, array $addresses, array $policy = [], array $others = [], bool $ring = false): void
    {
        if ($ring) {
            $this->call('PUT', '/v1/clusters/' . rawurlencode($cluster) . '/config', ['type' => 'EDS', 'lb_policy' => 'RING_HASH']);
        }
        $localities = [];
        foreach (array_filter([$addresses, $others]) as $priority => $some) {
            $endpoints = array_map(static function (string $address): array {
                [$host, $port] = explode(':', $address);
                return ['endpoint' => ['address' => ['socket_address' => ['address' => $host, 'port_value' => (int) $port]]]];
            }, $some);
            $localities[] = ['priority' => $priority, 'locality' => ['zone' => "zone $priority"], 'lb_endpoints' => $endpoints];
        }
        $body = ['endpoints' => $localities] + ($policy === [] ? [] : ['policy' => $policy]);
        $this->call('PUT', '/v1/clusters/' . rawurlencode($cluster) . '/endpoints', $body);
    }

    /**
     * Pushes a target.
     *
     * @param array<string, string> $routes clusters by the prefix of the path
     */
    public function route(string $target, array $routes): void
    {
        $list = [];
        foreach ($routes as $prefix => $cluster) {
            $list[] = ['match' => ['prefix' => $prefix], 'route' => ['cluster' => $cluster]];
        }
        $manager = [
            '@type' => 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
            'route_config' => ['virtual_hosts' => [['name' => $target, 'domains' => ['*'], 'routes' => $list]]],
        ];
        $listener = ['@type' => 'type.googleapis.com/envoy.config.listener.v3.Listener', 'name' => $target, 'api_listener' => ['api_listener' => $manager]];
        $this->call('POST', '/v1/snapshot', ['resources' => [$listener]]);
    }

    /** The requests of a cluster in flight, as leases. */
    public function inFlight(string $cluster): int
    {
        return $this->call('GET', '/v1/clusters/' . rawurlencode($cluster) . '?endpoints=false')['circuit_breaker']['in_flight'];
    }

    /** The requests of a cluster that were reported with an outcome. */
    public function reported(string $cluster, string $outcome): int
    {
        return $this->metric("lbd_reported_requests_total{cluster=\"$cluster\",outcome=\"$outcome\"}");
    }

    /** The value of a metric with its labels; 0 if it is not there. */
    public function metric(string $name): int
    {
        $handle = curl_init('http://localhost/metrics');
        curl_setopt_array($handle, [CURLOPT_UNIX_SOCKET_PATH => substr($this->lbd, 5), CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 5]);
        preg_match('/^' . preg_quote($name, '/') . ' (\S+)$/m', (string) curl_exec($handle), $match);
        return (int) (float) ($match[1] ?? 0);
    }

    public function __destruct()
    {
        $this->process = null;
        exec('rm -rf ' . escapeshellarg($this->directory));
    }
}
