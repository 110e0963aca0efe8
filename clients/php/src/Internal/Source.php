<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;

/** Where the addresses of one cluster, or target, come from, in the mode batch. */
abstract class Source
{
    /** Seconds that lbd may wait for an endpoint, before it answers that there is none. */
    protected const FETCH_WAIT = 1.0;

    /** What the next batch is for: what lbd has answered last; before any answer, what the first request has asked. */
    protected ?string $query = null;

    public function __construct(
        protected readonly string $cluster,
        protected readonly Api $api,
        protected readonly float $maxAge,
        protected readonly float $staleFor,
        protected readonly Asides $asides = new Asides(),
        protected readonly Asked $asked = new Asked(),
    ) {
    }

    /**
     * The next element whose address is not set aside. It waits only if there is no batch that may be used.
     *
     * @return array{Batch, int}
     * @throws LbdException if there is no batch in time
     */
    public function take(Deadline $deadline): array
    {
        $this->query ??= $this->batch()->query ?? '';
        $batch = $this->usable() ?? $this->await($deadline);
        return $batch->query === '' ? [$batch, $batch->take($this, $this->asides)] : $this->takeAsked('', '', true, $deadline);
    }

    /** The next turn of requests that ask nothing. */
    abstract public function turn(): int;

    /** The batch that take used, if there is one. */
    abstract public function batch(): ?Batch;

    /**
     * An element for what a request asks. It waits for lbd unless this is known.
     *
     * @param string $excluded addresses that are excluded, as a part of the query
     * @param bool $any whether it may be any element of the last batch if lbd is unreachable
     * @return array{Batch, int}
     * @throws LbdException
     */
    public function takeAsked(string $query, string $excluded, bool $any, Deadline $deadline): array
    {
        $this->query ??= $this->batch()->query ?? $query;
        try {
            $last = $this->usable() ?? $this->await($deadline);
        } catch (LbdException $error) {
            $others = $error->reason === 'no_route' || ($error->reason === 'invalid_argument' && Host::target($this->cluster) !== null);
            $last = $others ? null : throw $error; // it is that of another request
        }
        $batch = $this->ask($query . $excluded, $any ? $last : null, $deadline);
        $this->query = $batch->query === $query . $excluded ? $query : $this->query;
        return [$batch, $batch->take(null, $this->asides)];
    }

    private function ask(string $query, ?Batch $last, Deadline $deadline): Batch
    {
        $known = $this->asked->get($query);
        $now = Deadline::now();
        if ($known !== null && $now < $known->until) {
            return $known;
        }
        $stale = match (true) { // better another endpoint than none
            $known !== null && $now - $known->made < $this->staleFor => $known,
            $last?->generation !== null && Host::target($this->cluster) === null => $last,
            default => null,
        };
        if ($stale !== null && $this->lastError()?->reason === '') {
            return $stale;
        }
        try {
            return $this->fetchAsked($query, $deadline);
        } catch (Unavailable $error) {
            return $error->reason === '' && $stale !== null ? $stale : throw $error;
        }
    }

    /** @throws LbdException without a reason if lbd is unreachable */
    protected function fetchAsked(string $query, Deadline $deadline): Batch
    {
        $wait = $deadline->atMost(self::FETCH_WAIT);
        try {
            $answer = $this->api->call('GET', Batch::path($this->cluster, $wait, Batch::MIN, $query), null, $this->cluster, $wait + Api::CALL_TIMEOUT);
            $batch = Batch::ofAnswer($this->cluster, $answer, $query, $this->maxAge);
        } catch (Dropped | CircuitBroken $refusal) {
            $batch = Batch::ofRefusal($refusal, $query, $this->maxAge);
        } catch (Unreachable $error) {
            $this->failed($error);
            throw $this->lastError() ?? $error->of($this->cluster);
        }
        $this->asked->put($batch);
        $this->learned($batch);
        return $batch;
    }

    abstract protected function usable(): ?Batch;

    abstract protected function await(Deadline $deadline): Batch;

    /** Why the last call for a batch failed; null if it did not. */
    abstract protected function lastError(): ?LbdException;

    abstract protected function failed(Unreachable|LbdException $error): void;

    /** lbd has answered with a batch. */
    abstract protected function learned(Batch $batch): void;
}
