<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;
use Lbd\State;

/**
 * The batch that all processes of a php-fpm share.
 *
 * One process at a time replaces it, after its response. Nobody follows the cluster while there are no requests, so a
 * batch gets old quickly: a new batch costs lbd less than the question whether the cluster has changed.
 */
final class SharedBatch extends Source
{
    /** Seconds after which a batch is replaced, if that is no part of a user's request. */
    private const REFRESH = 1.0;

    /** Seconds between two batches, at least. */
    private const PAUSE = 0.1;

    /** Seconds after which a process that waits for another one looks again. */
    private const LOOK = 0.001;

    /** Seconds that the memory keeps entries about a cluster. */
    private const KEEP = 3600;

    private bool $used = false;
    private string $text = '';
    private ?Batch $decoded = null;

    public function __construct(
        string $cluster,
        Api $api,
        private readonly SharedMemory $memory,
        private readonly SharedCounts $counts,
        float $maxAge,
        float $staleFor,
        Asides $asides,
    ) {
        parent::__construct($cluster, $api, $maxAge, $staleFor, $asides, new SharedAsked($memory, $cluster, max($maxAge, $staleFor)));
    }

    public function turn(): int
    {
        return $this->memory->add("turn:$this->cluster", 1) & PHP_INT_MAX;
    }

    public function batch(): ?Batch
    {
        $text = $this->memory->get("batch:$this->cluster");
        if ($text !== $this->text) {
            $this->text = is_string($text) ? $text : '';
            $this->decoded = Batch::decode($this->text);
        }
        return $this->decoded;
    }

    protected function usable(): ?Batch
    {
        $this->used = true;
        $batch = $this->batch();
        return $batch !== null && Deadline::now() - $batch->made < $this->staleFor ? $batch : null;
    }

    /** Gets a batch for this process and all others, unless the last try failed a moment ago. */
    protected function await(Deadline $deadline): Batch
    {
        $claimed = $this->memory->claim("refresh:$this->cluster", self::FETCH_WAIT + Api::CALL_TIMEOUT);
        $claimed || $this->wait("refresh:$this->cluster", $deadline, fn (): bool => $this->usable() !== null || $this->lastError() !== null);
        $batch = $claimed ? null : $this->usable();
        if ($batch === null && ($claimed || $this->lastError() === null)) {
            $wait = $deadline->atMost(self::FETCH_WAIT);
            $batch = $this->refresh($wait, $wait + Api::CALL_TIMEOUT);
        }
        if ($batch === null && $this->batch() !== null && $this->lastError()?->reason === '') {
            $this->api->hooks?->changed(State::Stale, (string) $this->lastError()?->getMessage());
        }
        return $batch ?? throw $this->lastError() ?? new Unavailable("cluster $this->cluster: APCu is full", $this->cluster);
    }

    /** Waits for a call of another process, until its claim has ended, or what it needs is there. */
    private function wait(string $claim, Deadline $deadline, \Closure $ended): void
    {
        while ($this->memory->isClaimed($claim) && !$ended()) {
            if ($deadline->passed()) {
                throw new Unavailable("cluster $this->cluster: lbd did not answer in time", $this->cluster);
            }
            $this->api->transfers->wait(self::LOOK);
        }
    }

    /** One process at a time asks, and the others wait for that. If it gets no batch, each of them asks itself. */
    protected function fetchAsked(string $query, Deadline $deadline): Batch
    {
        $claim = "call:$this->cluster\0" . hash('xxh128', $query);
        $mine = $this->memory->claim($claim, self::FETCH_WAIT + Api::CALL_TIMEOUT);
        $mine || $this->wait($claim, $deadline, static fn (): bool => false);
        try {
            $known = $this->asked->get($query); // of a call that has just ended
            $error = $mine ? null : $this->lastError();
            return match (true) {
                $known !== null && Deadline::now() < $known->until => $known,
                $error?->reason === '' => throw $error,
                default => parent::fetchAsked($query, $deadline),
            };
        } finally {
            $mine && $this->memory->delete($claim);
        }
    }

    /** Replaces the batch for a request that has tried all of its endpoints, unless any process has done so a moment ago. */
    public function renew(Deadline $deadline): void
    {
        if ($this->lastError() === null && $this->memory->claim("renew:$this->cluster", self::PAUSE)) {
            $this->refresh(0.0, $deadline->atMost(Api::CALL_TIMEOUT));
        }
    }

    /** Replaces the batch if it is time, and no other process does. It is called after the response. */
    public function afterResponse(bool $responded, Deadline $deadline): void
    {
        $due = $this->used && $this->batch() !== null && !$deadline->passed() && ($responded || $this->old());
        if ($due && $this->memory->claim("refresh:$this->cluster", 2 * Api::CALL_TIMEOUT)) {
            $this->refresh(0.0, $deadline->atMost(Api::CALL_TIMEOUT));
        }
    }

    private function old(): bool
    {
        return Deadline::now() - (float) $this->batch()?->made >= $this->maxAge;
    }

    /** Gets a new batch; null after an error, which lastError has. */
    private function refresh(float $wait, float $timeout): ?Batch
    {
        try {
            $turn = (int) $this->memory->get("turn:$this->cluster") & PHP_INT_MAX;
            $batch = $this->fetch($turn, $wait, $timeout);
            $this->memory->set("first:$this->cluster", $turn, self::KEEP);
            $this->learned($batch);
            $this->asked->follow($batch->generation);
            if ($batch->query === '') {
                $this->asides->keep($batch->addresses());
            }
        } catch (Dropped | CircuitBroken $error) {
            $batch = Batch::ofRefusal($error, (string) $this->query, $this->maxAge);
        } catch (Unreachable | LbdException $error) {
            $this->failed($error);
            return null;
        }
        if ($batch->query !== '') {
            $this->asked->put($batch);
        }
        $stored = $this->memory->set("batch:$this->cluster", $batch->encode(), self::KEEP);
        $this->memory->delete("error:$this->cluster");
        $pause = $stored ? max(self::PAUSE, min(self::REFRESH, $this->maxAge) * mt_rand(800, 1000) / 1000) : 0.0;
        $this->memory->postpone("refresh:$this->cluster", $pause, self::KEEP);
        return $batch;
    }

    /** @throws Unreachable|LbdException */
    private function fetch(int $turn, float $wait, float $timeout): Batch
    {
        $query = (string) $this->query;
        $first = $this->memory->get("first:$this->cluster");
        $most = $this->memory->get("most:$this->cluster");
        $n = $query !== '' ? Batch::MIN : min(is_int($most) ? $most : Batch::MAX, $this->batch()?->next($turn - (is_int($first) ? $first : $turn)) ?? Batch::FIRST);
        try {
            $answer = $this->api->call('GET', Batch::path($this->cluster, $wait, $n, $query), null, $this->cluster, $timeout);
        } catch (LbdException $error) {
            if ($error->reason !== 'invalid_argument' || $n <= Batch::FIRST) {
                throw $error;
            }
            $this->memory->set("most:$this->cluster", Batch::FIRST, self::KEEP); // the quota of the caller permits less
            $answer = $this->api->call('GET', Batch::path($this->cluster, $wait, Batch::FIRST, $query), null, $this->cluster, $timeout);
        }
        return Batch::ofAnswer($this->cluster, $answer, $query, $this->maxAge);
    }

    protected function learned(Batch $batch): void
    {
        foreach ($batch->byCluster() as $cluster => $addresses) {
            $this->counts->know((string) $cluster, $addresses);
        }
        if ($this->lastError()?->reason === '') {
            $this->memory->delete("error:$this->cluster");
        }
    }

    protected function failed(Unreachable|LbdException $error): void
    {
        $last = $this->memory->get("error:$this->cluster");
        $failures = 1 + (is_array($last) ? (int) ($last[3] ?? 0) : 0);
        $error = $error instanceof LbdException ? $error : $error->of($this->cluster);
        $new = $this->batch() === null;
        $pause = $new && $error->isFinal() ? Batch::REFUSED_AGE : Pause::after($failures, $error->retryAfter);
        $keep = $new ? (int) ceil($pause + self::FETCH_WAIT + Api::CALL_TIMEOUT) : self::KEEP; // names are often input
        $this->memory->set("error:$this->cluster", [$error::class, $error->getMessage(), $error->reason, $failures], $keep);
        $this->memory->postpone("refresh:$this->cluster", $pause, $keep);
    }

    protected function lastError(): ?LbdException
    {
        $last = $this->memory->get("error:$this->cluster");
        if (!is_array($last)) {
            return null;
        }
        [$kind, $message, $reason] = $last;
        return is_a($kind, LbdException::class, true) ? new $kind($message, $this->cluster, $reason) : null;
    }
}
