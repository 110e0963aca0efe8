<?php

declare(strict_types=1);

namespace Lbd;

use Lbd\Exception\Unavailable;
use Lbd\Internal\Api;
use Lbd\Internal\Background;
use Lbd\Internal\Cluster;
use Lbd\Internal\Deadline;
use Lbd\Internal\Hooks;
use Lbd\Internal\Host;
use Lbd\Internal\Shutdown;
use Lbd\Internal\UpstreamRequest;
use Lbd\Internal\Upstreams;
use Psr\Http\Message\RequestInterface;

/**
 * Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks.
 *
 * @phpstan-type HostSetting string|array{cluster?: string, target?: string, headers?: list<string>, hash?: string}
 */
final class Client
{
    private const MODES = ['batch', 'pick', 'lease'];
    private const CLUSTERS = 1000;

    /** Bytes of the name of a cluster, and of what a request asks, at most. lbd permits 32 KiB with what a retry excludes. */
    private const NAME_MAX = 512;
    private const QUERY_MAX = 24 << 10;

    /** @internal */
    public readonly Api $api;

    /** @internal */
    public readonly Background $background;

    /** @internal */
    public readonly ?Hooks $hooks;

    /** The mode that is used: pick instead of batch where processes share nothing. */
    public readonly string $mode;

    /** @var ?\Closure(string): mixed what a function says of hosts */
    private readonly ?\Closure $hosts;

    /** @var array<string, Host> without such a function */
    private array $known = [];

    /** @var array<string, Cluster> */
    private array $clusters = [];

    private bool $closed = false;
    private bool $ended = false;

    /**
     * @param ?string $lbd unix:PATH, http://HOST:PORT or https://HOST:PORT. Default: environment LBD, else the first of
     *     unix:/run/lbd.sock and unix:/run/lbd/lbd.sock that is a socket, else http://localhost:8080
     * @param string $mode batch, pick or lease
     * @param ?string $token token for lbd. Default: environment LBD_TOKEN
     * @param ?string $tokenFile file with the token, read again after a 401. Default: environment LBD_TOKEN_FILE. With
     *     $token or $tokenFile, neither variable is used
     * @param ?string $ca PEM file of the certificates that may sign lbd's. Default: environment LBD_CA, else the system's
     * @param ?string $owner name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID
     * @param array<string, HostSetting>|callable(string): ?HostSetting $hosts what requests to hosts are for: the name of a
     *     cluster, or an array with these fields. cluster: default what is before .lbd. hash: where the hash key of a
     *     request is, header:NAME or cookie:NAME. target: a target, whose routes choose the cluster by the path, and by
     *     headers: those that they match, or that their hash policies need. The function returns null for other hosts
     * @param ?string $fallback HOST:PORT for requests while lbd is unreachable and the last batch is too old
     * @param float $timeout deadline in seconds of a request that sets none
     * @param float $connectTimeout seconds for a connection to an endpoint; after it, another one is tried
     * @param float $staleFor seconds for which the last batch is used while lbd is unreachable
     * @param float $maxAge seconds after which a batch is replaced at the latest, 80 % of them at the earliest
     * @param int $retries retries of a request, at most
     * @param float $maxTokens budget of retries of a cluster (gRFC A6)
     * @param float $ttl seconds of a lease of a request without a deadline
     * @param float $reportInterval seconds between two reports of how requests ended
     * @param bool $finishRequest whether to end the response of php-fpm (fastcgi_finish_request) before the calls to lbd
     *     at the end of the script
     * @param ?string $upstreamCa PEM file of the certificates that may sign those of endpoints, in request. Default: the
     *     system's
     * @param ?callable(Tried): mixed $onAttempt called when a try has ended, before the next one
     * @param ?callable(State): mixed $onState called when the state of lbd has changed, as this process knows it. What
     *     both do takes the time of a request; what they throw is logged
     * @param ?\Psr\Log\LoggerInterface $logger gets changes of the state, and at the level debug each try. No token, hash
     *     key or query is logged
     * @throws \ValueError for a setting that is not valid
     */
    public function __construct(
        ?string $lbd = null,
        string $mode = 'batch',
        #[\SensitiveParameter] ?string $token = null,
        ?string $tokenFile = null,
        ?string $ca = null,
        private readonly ?string $owner = null,
        array|callable $hosts = [],
        public readonly ?string $fallback = null,
        public readonly float $timeout = 30.0,
        public readonly float $connectTimeout = 5.0,
        float $staleFor = 60.0,
        float $maxAge = 10.0,
        public readonly int $retries = 2,
        float $maxTokens = 100.0,
        public readonly float $ttl = 30.0,
        float $reportInterval = 5.0,
        bool $finishRequest = true,
        public readonly ?string $upstreamCa = null,
        ?callable $onAttempt = null,
        ?callable $onState = null,
        ?object $logger = null,
    ) {
        if (!in_array($mode, self::MODES, true)) {
            throw new \ValueError("mode: '$mode' is not batch, pick or lease");
        }
        $this->hosts = is_array($hosts) ? null : $hosts(...);
        foreach (is_array($hosts) ? $hosts : [] as $host => $setting) {
            $host = strtolower((string) $host);
            $this->known[$host] = Host::of($host, $setting);
        }
        $environment = self::environment('LBD');
        $address = $lbd ?? $environment ?? Api::defaultAddress();
        $found = match (true) {
            $lbd !== null => 'the setting lbd',
            $environment !== null => 'environment LBD',
            default => 'default; set LBD',
        };
        $this->hooks = $onAttempt === null && $onState === null && $logger === null ? null
            : new Hooks($onAttempt === null ? null : $onAttempt(...), $onState === null ? null : $onState(...), $logger);
        if ($token === null && $tokenFile === null) {
            [$token, $tokenFile] = [self::environment('LBD_TOKEN'), self::environment('LBD_TOKEN_FILE')];
        }
        $token ??= '';
        $tokenFile ??= '';
        $ca ??= self::environment('LBD_CA') ?? '';
        $this->api = new Api($address, $token, $tokenFile, $ca, $found, $this->hooks);
        $identity = "$address\0$token\0$tokenFile\0$ca";
        $this->background = new Background($this->api, $mode, $identity, $maxAge, $staleFor, $maxTokens, $reportInterval, $finishRequest);
        $this->mode = $this->background->mode;
        Shutdown::register($this, $this->background->web);
    }

    private static function environment(string $name): ?string
    {
        $value = getenv($name);
        return is_string($value) && $value !== '' ? $value : null;
    }

    /** What requests to a host are for; null if they are not for lbd. */
    public function host(string $host): ?Host
    {
        $known = $this->known[$host] ?? $this->known[$host = strtolower($host)] ?? null;
        if ($known !== null) {
            return $known;
        }
        $setting = $this->hosts === null ? null : ($this->hosts)($host);
        if ($setting !== null) {
            return Host::of($host, $setting);
        }
        $cluster = Host::suffixed($host);
        $found = $cluster === null ? null : new Host($cluster);
        if ($found !== null && $this->hosts === null && count($this->known) < self::CLUSTERS && strlen($host) <= self::NAME_MAX) {
            $this->known[$host] = $found;
        }
        return $found;
    }

    /**
     * Sends a request with curl, and returns the response, whatever its status.
     *
     * @param string $url http://CLUSTER.lbd/PATH, or https:// for upstreams with TLS
     * @param array<string, string|list<string>> $headers
     * @param ?float $timeout deadline in seconds. Default: that of the client
     * @param ?bool $idempotent whether it may be retried. Default: if the method is idempotent, or there is a header
     *     Idempotency-Key
     * @param ?resource $sink where the body is written to, instead of Response::$body
     * @param ?Ask $ask what the program asks of lbd; gets what lbd has chosen
     * @throws Exception\LbdException without an endpoint
     * @throws Exception\ConnectionFailed if the upstream fails, and TimedOut at the deadline
     */
    public function request(
        string $method,
        string $url,
        string $body = '',
        array $headers = [],
        ?float $timeout = null,
        ?bool $idempotent = null,
        mixed $sink = null,
        ?Ask $ask = null,
    ): Response {
        return (new Upstreams($this))->request($method, $url, $body, $headers, $timeout ?? $this->timeout, $idempotent, $sink, $ask);
    }

    /**
     * A request, for an adapter of an HTTP library.
     *
     * @param string|Host $host a cluster, a target xds:///NAME, or what host returned
     * @param float $timeout seconds until the deadline
     * @param bool $repeatable whether it may be sent again
     * @param ?Ask $ask what the program asks of lbd; gets what lbd has chosen
     * @param RequestInterface|UpstreamRequest|null $request where the hash key is, and what the routes of a target match
     */
    public function call(
        string|Host $host,
        float $timeout,
        bool $repeatable,
        ?Ask $ask = null,
        RequestInterface|UpstreamRequest|null $request = null,
    ): Call {
        $host = is_string($host) ? new Host($host) : $host;
        $query = $host->plain && $ask === null ? '' : $host->query($ask, $request);
        if (strlen($host->name) > self::NAME_MAX || strlen($query) > self::QUERY_MAX) {
            $name = substr($host->name, 0, self::NAME_MAX);
            $detail = 'its name has more than 512 bytes, or path, headers and hash key of the request more than 24 KiB';
            throw new Unavailable("cluster $name: $detail (invalid_argument)", $name, 'invalid_argument');
        }
        return new Call($this, $this->cluster($host->name), new Deadline($timeout), $repeatable, $query, $ask, $request);
    }

    /** @internal what is known of a cluster or target */
    public function cluster(string $cluster): Cluster
    {
        if ($this->closed) {
            throw new Unavailable("cluster $cluster: the client is closed", $cluster);
        }
        $this->background->advance($this->clusters);
        if (isset($this->clusters[$cluster])) {
            return $this->clusters[$cluster];
        }
        if (count($this->clusters) >= self::CLUSTERS && $this->mode !== 'batch') {
            $picked = array_map(static fn (Cluster $known): float => $known->picked, $this->clusters);
            unset($this->clusters[array_search(min($picked), $picked, true)]);
        } elseif (count($this->clusters) >= self::CLUSTERS) {
            $this->clusters = array_filter($this->clusters, static fn (Cluster $known): bool => !$known->idle());
        }
        if (count($this->clusters) >= self::CLUSTERS) {
            throw new Unavailable("cluster $cluster: the client has " . self::CLUSTERS . ' clusters', $cluster);
        }
        return $this->clusters[$cluster] = $this->background->cluster($cluster);
    }

    /**
     * Does what is due in the background, and waits for it for these seconds. Requests do it, too: call it only where a
     * process is idle for long, from a timer or instead of sleep.
     */
    public function tick(float $seconds = 0.0): void
    {
        $this->background->tick($this->clusters, $seconds);
    }

    /** @internal does what is due in the background, without waiting */
    public function advance(): void
    {
        $this->background->advance($this->clusters);
    }

    /** @internal */
    public function owner(): string
    {
        return $this->owner ?? self::environment('LBD_OWNER') ?? Background::process();
    }

    /**
     * Sends the last report and ends the leases, for at most these seconds. Requests fail from now on.
     *
     * The end of the script, and of the last reference to the client, do the same.
     */
    public function close(float $timeout = 1.0): void
    {
        if (!$this->closed) {
            $this->closed = true;
            $this->background->settle($this->clusters, $timeout);
            $this->clusters = []; // requests that end later do not begin to follow them again
        }
    }

    /** @internal */
    public function isClosed(): bool
    {
        return $this->closed;
    }

    /** @internal the end of the script, for at most these seconds. Destructors may still send requests. */
    public function end(float $timeout): void
    {
        if (!$this->closed) {
            $this->ended = true;
            $this->background->end($this->clusters, $timeout);
        }
    }

    public function __destruct()
    {
        if (isset($this->background)) { // the constructor may have thrown
            $this->close($this->ended ? 0.0 : 1.0);
        }
    }
}
