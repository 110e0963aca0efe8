<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;
use Lbd\State;

/** The batch of a process that lives for long. It follows the cluster with calls that run beside the requests. */
final class FollowedBatch extends Source
{
    /** Seconds between two calls that follow a cluster, and between two batches because it changed, at least. */
    private const FOLLOW_PAUSE = 0.1;

    private const FOLLOW_WAIT = 30.0;

    /** Seconds without a request after which the cluster is not followed any more. */
    private const IDLE_TIME = 300.0;

    private ?Batch $batch = null;
    private int $turn = 0;

    /** The turn when the batch came. */
    private int $firstTurn = 0;

    /** Picks to ask for, at most: the quota of the caller may permit less. */
    private int $most = Batch::MAX;
    private ?LbdException $error = null;
    private int $failures = 0;
    private bool $changed = false;
    private float $due = 0.0;
    private float $used = -INF;
    private float $looked = 0.0;

    /** @var ?\Closure(): void gives the running call up */
    private ?\Closure $stop = null;

    public function turn(): int
    {
        return $this->turn++;
    }

    public function batch(): ?Batch
    {
        return $this->batch;
    }

    protected function usable(): ?Batch
    {
        $this->used = Deadline::now();
        return $this->batch !== null && $this->used - $this->batch->made < $this->staleFor ? $this->batch : null;
    }

    /** Waits for the call for a batch, unless the last one failed a moment ago. */
    protected function await(Deadline $deadline): Batch
    {
        $this->api->transfers->advance();
        if ($this->idle() && Deadline::now() >= $this->due) {
            $this->error = null; // lbd may know the name now
        }
        $this->advance();
        while ($this->usable() === null && $this->stop !== null && !$deadline->passed()) {
            $this->api->transfers->wait($deadline->atMost(1.0));
            $this->advance();
        }
        if ($this->usable() === null && $this->batch !== null && $this->error?->reason === '') {
            $this->api->hooks?->changed(State::Stale, $this->error->getMessage());
        }
        return $this->usable() ?? throw $this->error?->again()
            ?? new Unavailable("cluster $this->cluster: lbd did not answer in time", $this->cluster);
    }

    /** Whether the cluster is not followed: there were no requests for long, or lbd rejects its name, which is often input. */
    private function idle(): bool
    {
        return Deadline::now() - $this->used > self::IDLE_TIME || ($this->batch === null && $this->error?->isFinal() === true);
    }

    /** Starts the call that is due, if any. */
    public function advance(): void
    {
        $this->looked = $now = Deadline::now();
        if ($this->idle() && $this->batch !== null) {
            $this->stop();
            $this->batch = $this->query = $this->error = null;
            $this->due = 0.0;
            $this->asked->clear();
        }
        if ($this->stop !== null || $now < $this->due || $this->idle()) {
            return;
        }
        $batch = $this->batch;
        $left = $batch === null ? 0.0 : $batch->until - $now;
        if ($batch?->generation === null || $this->changed || $left <= 0) {
            $query = (string) $this->query;
            $n = $query !== '' ? Batch::MIN : min($this->most, $batch?->next($this->turn - $this->firstTurn) ?? Batch::FIRST);
            $use = fn (array $answer) => $this->got(Batch::ofAnswer($this->cluster, $answer, $query, $this->maxAge), 0.0);
            $this->call(Batch::path($this->cluster, self::FETCH_WAIT, $n, $query), self::FETCH_WAIT, $use, $query);
        } else {
            $wait = min($left, self::FOLLOW_WAIT);
            $target = Host::target($this->cluster);
            $path = '/v1/clusters/' . rawurlencode($batch->chosen()[0] ?? $this->cluster) . ($target === null ? '?' : '?target=' . rawurlencode($target) . '&')
                . "endpoints=false&index=$batch->generation&wait=" . Api::duration($wait);
            $this->call($path, $wait, fn (array $answer) => $this->followed($answer, $now));
        }
    }

    /** @param \Closure(array<mixed>): void $use */
    private function call(string $path, float $wait, \Closure $use, string $query = ''): void
    {
        $this->stop = static function (): void {
        };
        $done = function (array|Unreachable|LbdException $answer) use ($use, $query): void {
            $this->stop = null;
            try {
                if ($answer instanceof Dropped || $answer instanceof CircuitBroken) {
                    $batch = Batch::ofRefusal($answer, $query, $this->maxAge);
                    $this->got($batch, $batch->until - $batch->made);
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

    private function got(Batch $batch, float $pause): void
    {
        $this->batch = $batch;
        $this->firstTurn = $this->turn;
        if ($batch->generation !== null && $batch->query === '') {
            $this->asides->keep($batch->addresses());
        }
        $this->asked->follow($batch->generation);
        $this->asked->put($batch);
        $this->changed = false;
        $this->error = null;
        $this->failures = 0;
        $this->due = Deadline::now() + $pause;
    }

    protected function learned(Batch $batch): void
    {
        $this->error = $this->error?->reason === '' ? null : $this->error;
    }

    protected function lastError(): ?LbdException
    {
        return $this->error;
    }

    /** @param array<mixed> $answer */
    private function followed(array $answer, float $began): void
    {
        $this->changed = ($answer['generation'] ?? null) !== $this->batch?->generation;
        $this->due = ($this->changed ? (float) $this->batch?->made : $began) + self::FOLLOW_PAUSE;
    }

    protected function failed(Unreachable|LbdException $error): void
    {
        $this->error = $error instanceof LbdException ? $error : $error->of($this->cluster);
        $this->failures++;
        $this->changed = true; // a cluster that is followed may be in the target no more
        $this->due = Deadline::now() + ($this->idle() ? Batch::REFUSED_AGE : Pause::after($this->failures, $this->error->retryAfter));
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
