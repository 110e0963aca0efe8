<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** What a client does beside its requests, in the way that its process permits. */
final class Background
{
    /** Seconds between two looks at what is due. */
    private const PAUSE = 0.001;

    /** Seconds that a wait takes at most until the next look. */
    private const WAIT = 0.1;

    /** Whether the process answers one request of a web server after the other, and PHP forgets all between them. */
    public readonly bool $web;

    public readonly string $mode;
    public readonly Leases $leases;

    /** The number of forks before this process. */
    public int $epoch = 0;

    private readonly Reports $reports;
    private readonly ?SharedMemory $memory;
    private readonly ?SharedCounts $sharedCounts;
    private int $pid;
    private float $next = 0.0;

    /** The name of this client in its reports. */
    private string $reporter;

    private readonly float $maxAge;

    public function __construct(
        private readonly Api $api,
        string $mode,
        #[\SensitiveParameter] string $identity,
        float $maxAge,
        private readonly float $staleFor,
        private readonly float $maxTokens,
        float $reportInterval,
        private readonly bool $finishRequest,
    ) {
        $this->maxAge = min($maxAge, $staleFor);
        $this->web = !in_array(PHP_SAPI, ['cli', 'phpdbg', 'embed'], true) && !isset($_SERVER['FRANKENPHP_WORKER']);
        $shared = $this->web && function_exists('apcu_enabled') && apcu_enabled();
        $this->mode = $mode === 'batch' && $this->web && !$shared ? 'pick' : $mode;
        $this->memory = $shared ? new SharedMemory('lbd1:' . hash('xxh128', $identity) . ':') : null;
        $this->sharedCounts = $this->memory === null ? null : new SharedCounts($api, $this->memory, $reportInterval);
        $this->leases = new Leases($api);
        $this->reports = new Reports($api, $reportInterval);
        $this->pid = (int) getmypid();
        $this->reporter = self::drawReporter();
        if (!$this->web) {
            Errors::load();
        }
    }

    public static function process(): string
    {
        return substr((string) gethostname(), 0, 100) . '/' . getmypid();
    }

    /** A name that no other client has. In containers, other processes may have the same name and ID. */
    private static function drawReporter(): string
    {
        return self::process() . '/' . bin2hex(random_bytes(4));
    }

    public function cluster(string $name): Cluster
    {
        $budget = $this->memory === null ? new Budget($this->maxTokens) : new SharedBudget($this->memory, $name, $this->maxTokens);
        $asides = $this->memory === null ? new Asides() : new SharedAsides($this->memory, $name);
        $source = match (true) {
            $this->mode !== 'batch' => null,
            $this->memory === null || $this->sharedCounts === null
                => new FollowedBatch($name, $this->api, $this->maxAge, $this->staleFor, $asides),
            default => new SharedBatch($name, $this->api, $this->memory, $this->sharedCounts, $this->maxAge, $this->staleFor, $asides),
        };
        return new Cluster($name, $source, $budget, $asides, new Connects($name, $this->memory));
    }

    /** Tells lbd of a connect that failed. */
    public function unreachable(string $cluster, string $address): void
    {
        $this->reports->unreachable($cluster, $address);
        $this->reports->tell($this->reporter(...));
    }

    private function reporter(): string
    {
        return $this->sharedCounts?->reporter() ?? $this->reporter;
    }

    /**
     * Does what is due, without waiting.
     *
     * @param array<string, Cluster> $clusters
     */
    public function advance(array $clusters): void
    {
        if (getmypid() !== $this->pid) {
            $this->afterFork($clusters);
        }
        $now = Deadline::now();
        if ($now < $this->next) {
            return;
        }
        $this->next = $now + self::PAUSE;
        $this->api->transfers->advance();
        foreach ($clusters as $cluster) {
            if ($cluster->source instanceof FollowedBatch) {
                $cluster->source->advance();
            }
        }
        if ($this->mode === 'batch' && !$this->web) {
            $this->reports->advance(self::counts($clusters), $this->reporter);
        }
        $this->reports->tell($this->reporter(...));
        $this->leases->advance();
    }

    /**
     * Does what is due for these seconds.
     *
     * @param array<string, Cluster> $clusters
     */
    public function tick(array $clusters, float $seconds): void
    {
        $deadline = new Deadline($seconds);
        $this->next = 0.0;
        $this->advance($clusters);
        while (!$deadline->passed()) {
            $this->api->transfers->wait($deadline->atMost(self::WAIT));
            $this->advance($clusters);
        }
    }

    /**
     * Gives to lbd, or to the shared memory, what is known of requests, for at most these seconds.
     *
     * @param array<string, Cluster> $clusters
     */
    public function settle(array $clusters, float $timeout): void
    {
        if (getmypid() !== $this->pid) {
            $this->afterFork($clusters);
        }
        foreach ($clusters as $cluster) {
            if ($cluster->source instanceof FollowedBatch) {
                $cluster->source->stop();
            }
        }
        $deadline = new Deadline($timeout);
        $this->leases->cancel();
        if ($this->sharedCounts !== null) {
            foreach ($clusters as $cluster) {
                $this->sharedCounts->add($cluster->name, $cluster->counts);
            }
        } elseif ($this->mode === 'batch') {
            $this->reports->send(self::counts($clusters), $this->reporter, true);
        }
        while (true) {
            $this->reports->tell($this->reporter(...), 0.0);
            if (($this->leases->settled() && $this->reports->settled()) || $deadline->passed()) {
                break;
            }
            $this->api->transfers->wait($deadline->atMost(self::WAIT));
            $this->leases->advance();
        }
    }

    /**
     * The end of the script: settles for at most these seconds, and then does what is better done after the response.
     *
     * @param array<string, Cluster> $clusters
     */
    public function end(array $clusters, float $timeout): void
    {
        $responded = $this->web && $this->mode !== 'pick' && $clusters !== [] && $this->finishRequest && self::finishRequest();
        $this->settle($clusters, $timeout);
        if ($this->sharedCounts === null) {
            return;
        }
        $deadline = new Deadline(Api::CALL_TIMEOUT);
        foreach ($clusters as $cluster) {
            if ($cluster->source instanceof SharedBatch) {
                $cluster->source->afterResponse($responded, $deadline);
            }
        }
        if ($clusters !== []) {
            $this->sharedCounts->report($deadline);
        }
    }

    /** Ends the response, and says whether that is possible. */
    private static function finishRequest(): bool
    {
        $finish = match (true) {
            function_exists('fastcgi_finish_request') => 'fastcgi_finish_request',
            function_exists('litespeed_finish_request') => 'litespeed_finish_request',
            default => null,
        };
        if ($finish === null || !$finish()) {
            return false;
        }
        if (session_status() === PHP_SESSION_ACTIVE) {
            session_write_close(); // the next request of this user waits for it
        }
        return true;
    }

    /**
     * @param array<string, Cluster> $clusters
     * @return array<string, Counts>
     */
    private static function counts(array $clusters): array
    {
        return array_map(static fn (Cluster $cluster): Counts => $cluster->counts, $clusters);
    }

    /** @param array<string, Cluster> $clusters */
    private function afterFork(array $clusters): void
    {
        $this->pid = (int) getmypid();
        $this->reporter = self::drawReporter();
        $this->epoch++;
        $this->next = 0.0;
        $this->api->transfers = new Transfers(); // connections and calls are those of the parent
        $this->leases->afterFork();
        $this->reports->afterFork();
        foreach ($clusters as $cluster) {
            $cluster->counts->afterFork();
            if ($cluster->source instanceof FollowedBatch) {
                $cluster->source->afterFork();
            }
        }
    }
}
