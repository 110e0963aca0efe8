<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;

/** The batch of a process that lives for long. It follows the cluster with calls that run beside the requests. */
final class FollowedBatch implements Source
{
    /** Seconds after which a batch of nothing but refusals is fetched again. */
    private const REFUSED_AGE = 1.0;

    /** Seconds between two calls that follow a cluster, and between two batches because it changed, at least. */
    private const FOLLOW_PAUSE = 0.1;

    private const FOLLOW_WAIT = 30.0;

    /** Seconds that lbd may wait for an endpoint, before it answers that there is none. */
    private const FETCH_WAIT = 1.0;

    /** Seconds without a request after which the cluster is not followed any more. */
    private const IDLE_TIME = 300.0;

    private ?Batch $batch = null;
    private int $turn = 0;

    /** The turn when the batch came. */
    private int $firstTurn = 0;

    /** Picks to ask for, at most: the quota of the caller may permit less. */
    private int $most = Batch::MAX;
    private float $old = 0.0;
    private ?LbdException $error = null;
    private int $failures = 0;
    private bool $changed = false;
    private float $due = 0.0;
    private float $used = -INF;
    private float $looked = 0.0;

    /** @var ?\Closure(): void gives the running call up */
    private ?\Closure $stop = null;

    public function __construct(
        private readonly string $cluster,
        private readonly Api $api,
        private readonly float $maxAge,
        private readonly float $staleFor,
        private readonly Asides $asides = new Asides(),
    ) {
    }

    public function take(Deadline $deadline): string
    {
        $this->used = Deadline::now();
        $batch = $this->usable() ?? $this->await($deadline);
        return $batch->take(fn (): int => $this->turn++, $this->asides, $this->cluster);
    }

    public function batch(): ?Batch
    {
        return $this->batch;
    }

    private function usable(): ?Batch
    {
        return $this->batch !== null && Deadline::now() - $this->batch->made < $this->staleFor ? $this->batch : null;
    }

    /** Waits for the call for a batch, unless the last one failed a moment ago. */
    private function await(Deadline $deadline): Batch
    {
        $this->api->transfers->advance();
        $this->advance();
        while ($this->usable() === null && $this->stop !== null && !$deadline->passed()) {
            $this->api->transfers->wait($deadline->atMost(1.0));
            $this->advance();
        }
        return $this->usable() ?? throw $this->error?->again()
            ?? new Unavailable("cluster $this->cluster: lbd did not answer in time", $this->cluster);
    }

    /** Whether there were no requests for so long that the cluster is not followed any more. */
    public function idle(): bool
    {
        return Deadline::now() - $this->used > self::IDLE_TIME;
    }

    /** Starts the call that is due, if any. */
    public function advance(): void
    {
        $this->looked = $now = Deadline::now();
        if ($this->stop !== null || $now < $this->due || $this->idle()) {
            return;
        }
        $batch = $this->batch;
        $left = $batch === null ? 0.0 : $this->old - $now;
        if ($batch?->generation === null || $this->changed || $left <= 0) {
            $n = min($this->most, $batch?->next($this->turn - $this->firstTurn) ?? Batch::FIRST);
            $this->call(Batch::path($this->cluster, self::FETCH_WAIT, $n), self::FETCH_WAIT, $this->fetched(...));
        } else {
            $wait = min($left, self::FOLLOW_WAIT);
            $path = '/v1/clusters/' . rawurlencode($this->cluster) . "?endpoints=false&index=$batch->generation&wait=" . Api::duration($wait);
            $this->call($path, $wait, fn (array $answer) => $this->followed($answer, $now));
        }
    }

    /** @param \Closure(array<mixed>): void $use */
    private function call(string $path, float $wait, \Closure $use): void
    {
        $this->stop = static function (): void {
        };
        $done = function (array|Unreachable|LbdException $answer) use ($use): void {
            $this->stop = null;
            try {
                if ($answer instanceof Dropped || $answer instanceof CircuitBroken) {
                    $this->got(Batch::ofRefusal($answer), min(self::REFUSED_AGE, $this->maxAge));
                } elseif (is_array($answer)) {
                    $use($answer);
                } elseif ($answer instanceof Unreachable && Deadline::now() - $this->looked > min(Pause::MAX, $this->staleFor)) {
                    $this->due = 0.0; // nobody looked for long: another call would have followed by now
                } elseif ($answer instanceof LbdException && $answer->reason === 'invalid_argument' && $this->most > Batch::FIRST) {
                    $this->most = Batch::FIRST;
                } else {
                    $this->failed($answer);
                }
            } catch (Unreachable $error) {
                $this->failed($error);
            }
        };
        $stop = $this->api->start('GET', $path, $done, null, $this->cluster, $wait + Api::CALL_TIMEOUT);
        if ($this->stop !== null) {
            $this->stop = $stop;
        }
    }

    /** @param array<mixed> $answer */
    private function fetched(array $answer): void
    {
        $this->got(Batch::ofAnswer($this->cluster, $answer), 0.0);
    }

    private function got(Batch $batch, float $pause): void
    {
        $this->batch = $batch;
        $this->firstTurn = $this->turn;
        if ($batch->generation !== null) {
            $this->asides->keep($batch->addresses());
        }
        // Drawn, because a change makes all clients get a batch at the same time.
        $this->old = $batch->made + max(self::FOLLOW_PAUSE, $this->maxAge * mt_rand(800, 1000) / 1000);
        $this->changed = false;
        $this->error = null;
        $this->failures = 0;
        $this->due = Deadline::now() + $pause;
    }

    /** @param array<mixed> $answer */
    private function followed(array $answer, float $began): void
    {
        $this->changed = ($answer['generation'] ?? null) !== $this->batch?->generation;
        $this->due = ($this->changed ? (float) $this->batch?->made : $began) + self::FOLLOW_PAUSE;
    }

    private function failed(Unreachable|LbdException $error): void
    {
        $this->error = $error instanceof LbdException ? $error
            : new Unavailable("cluster $this->cluster: lbd is unreachable: {$error->getMessage()}", $this->cluster);
        $this->failures++;
        $this->due = Deadline::now() + Pause::after($this->failures, $this->error->retryAfter);
    }

    /** Gives the running call up. */
    public function stop(): void
    {
        if ($this->stop !== null) {
            ($this->stop)();
            $this->stop = null;
        }
    }

    /** Keeps the batch: the calls are those of the parent. */
    public function afterFork(): void
    {
        $this->stop = null;
        $this->due = 0.0;
        $this->turn = $this->firstTurn = mt_rand(0, Batch::MAX);
    }
}
