<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;

/**
 * The batch that all processes of a php-fpm share.
 *
 * One process at a time replaces it, after its response. Nobody follows the cluster while there are no requests, so a
 * batch gets old quickly: a new batch costs lbd less than the question whether the cluster has changed.
 */
final class SharedBatch implements Source
{
    /** Seconds after which a batch is replaced, if that is no part of a user's request. */
    private const REFRESH = 1.0;

    /** Seconds between two batches, at least. */
    private const PAUSE = 0.1;

    /** Seconds that lbd may wait for an endpoint in a user's request, before it answers that there is none. */
    private const FETCH_WAIT = 1.0;

    /** Seconds that the memory keeps entries about a cluster that lbd may not even know. */
    private const KEEP = 3600;

    private string $text = '';
    private ?Batch $decoded = null;

    public function __construct(
        private readonly string $cluster,
        private readonly Api $api,
        private readonly SharedMemory $memory,
        private readonly SharedCounts $counts,
        private readonly float $maxAge,
        private readonly float $staleFor,
        private readonly Asides $asides,
    ) {
    }

    public function take(Deadline $deadline): string
    {
        $batch = $this->usable() ?? $this->first($deadline);
        return $batch->take(fn (): int => $this->memory->add("turn:$this->cluster", 1) & PHP_INT_MAX, $this->asides, $this->cluster);
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

    private function usable(): ?Batch
    {
        $batch = $this->batch();
        return $batch !== null && Deadline::now() - $batch->made < $this->staleFor ? $batch : null;
    }

    /** Gets a batch for this process and all others, unless the last try failed a moment ago. */
    private function first(Deadline $deadline): Batch
    {
        $wait = $deadline->atMost(self::FETCH_WAIT);
        $claimed = $this->memory->claim("refresh:$this->cluster", $wait + Api::CALL_TIMEOUT);
        $error = $this->lastError();
        if ($error !== null && !$claimed) {
            throw $error;
        }
        $batch = $this->refresh($wait, $wait + Api::CALL_TIMEOUT);
        return $batch ?? throw $this->lastError() ?? new Unavailable("cluster $this->cluster: APCu is full", $this->cluster);
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
        $due = !$deadline->passed() && ($responded || $this->old());
        if ($due && $this->memory->claim("refresh:$this->cluster", 2 * Api::CALL_TIMEOUT)) {
            $this->refresh(0.0, $deadline->atMost(Api::CALL_TIMEOUT));
        }
    }

    private function old(): bool
    {
        $batch = $this->batch();
        return $batch === null || Deadline::now() - $batch->made >= $this->maxAge;
    }

    /** Gets a new batch; null after an error, which lastError has. */
    private function refresh(float $wait, float $timeout): ?Batch
    {
        try {
            $turn = $this->memory->add("turn:$this->cluster", 0) & PHP_INT_MAX;
            $batch = $this->fetch($turn, $wait, $timeout);
            $this->memory->set("first:$this->cluster", $turn, self::KEEP);
            $this->counts->know($this->cluster, $batch);
            $this->asides->keep($batch->addresses());
        } catch (Dropped | CircuitBroken $error) {
            $batch = Batch::ofRefusal($error);
        } catch (Unreachable | LbdException $error) {
            $this->failed($error);
            return null;
        }
        $this->memory->set("batch:$this->cluster", $batch->encode(), self::KEEP);
        $this->memory->delete("error:$this->cluster");
        $this->memory->postpone("refresh:$this->cluster", max(self::PAUSE, min(self::REFRESH, $this->maxAge) * mt_rand(800, 1000) / 1000), self::KEEP);
        return $batch;
    }

    /** @throws Unreachable|LbdException */
    private function fetch(int $turn, float $wait, float $timeout): Batch
    {
        $first = $this->memory->get("first:$this->cluster");
        $most = $this->memory->get("most:$this->cluster");
        $n = min(is_int($most) ? $most : Batch::MAX, $this->batch()?->next($turn - (is_int($first) ? $first : $turn)) ?? Batch::FIRST);
        try {
            $answer = $this->api->call('GET', Batch::path($this->cluster, $wait, $n), null, $this->cluster, $timeout);
        } catch (LbdException $error) {
            if ($error->reason !== 'invalid_argument' || $n <= Batch::FIRST) {
                throw $error;
            }
            $this->memory->set("most:$this->cluster", Batch::FIRST, self::KEEP); // the quota of the caller permits less
            $answer = $this->api->call('GET', Batch::path($this->cluster, $wait, Batch::FIRST), null, $this->cluster, $timeout);
        }
        return Batch::ofAnswer($this->cluster, $answer);
    }

    private function failed(Unreachable|LbdException $error): void
    {
        $last = $this->memory->get("error:$this->cluster");
        $failures = 1 + (is_array($last) ? (int) ($last[3] ?? 0) : 0);
        [$kind, $message, $reason, $retryAfter] = $error instanceof LbdException
            ? [$error::class, $error->getMessage(), $error->reason, $error->retryAfter]
            : [Unavailable::class, "cluster $this->cluster: lbd is unreachable: {$error->getMessage()}", '', 0.0];
        $this->memory->set("error:$this->cluster", [$kind, $message, $reason, $failures], self::KEEP);
        $this->memory->postpone("refresh:$this->cluster", Pause::after($failures, $retryAfter), self::KEEP);
    }

    private function lastError(): ?LbdException
    {
        $last = $this->memory->get("error:$this->cluster");
        if (!is_array($last)) {
            return null;
        }
        [$kind, $message, $reason] = $last;
        return is_a($kind, LbdException::class, true) ? new $kind($message, $this->cluster, $reason) : null;
    }
}
