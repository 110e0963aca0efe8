<?php

declare(strict_types=1);

namespace Lbd;

use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;
use Lbd\Internal\Api;
use Lbd\Internal\Batch;
use Lbd\Internal\Cluster;
use Lbd\Internal\Connects;
use Lbd\Internal\Deadline;
use Lbd\Internal\Host;
use Lbd\Internal\SharedBatch;
use Lbd\Internal\Source;
use Lbd\Internal\Unreachable;
use Lbd\Internal\UpstreamRequest;
use Psr\Http\Message\RequestInterface;

/** One request to a cluster, with all of its tries. An adapter of an HTTP library gets it from Client::call. */
final class Call
{
    public const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'];
    public const RETRIED_STATUSES = [502, 503, 504];

    private const WAIT_MAX = 5.0;
    private const LEASE_GRACE = 5.0;
    private const LEASE_MAX = 600.0;

    /** Seconds that a request waits for other endpoints after the last one did not answer, and until it looks or asks again. */
    private const OTHER_TIME = 1.0;
    private const LOOK_PAUSE = 0.01;
    private const ASK_PAUSE = 0.2;

    /** Seconds that a retry needs: curl may end a try a moment before its time. */
    private const RETRY_TIME = 0.005;

    /** @var list<string> */
    private array $tried = [];

    /** Tries that were not sent. */
    private int $moves = 0;

    /** Whether the last try was not sent; null unless it failed without an answer. */
    private ?bool $unsent = null;

    /** Whether a try was not sent for want of time to connect, and its address was not tried again. */
    private bool $cut = false;

    /** Whether the address of the last try is not from lbd. */
    private bool $fallback = false;

    /** The lease of the last try. */
    private ?string $lease = null;

    private readonly int $epoch;

    /** @internal */
    public function __construct(
        /** @internal */
        public readonly Client $client,
        /** @internal */
        public readonly Cluster $cluster,
        public readonly Deadline $deadline,
        private readonly bool $repeatable,
        private readonly string $query,
        /** @internal */
        public readonly ?Ask $ask,
        private readonly RequestInterface|UpstreamRequest|null $request,
    ) {
        $this->epoch = $client->background->epoch;
    }

    /**
     * The first try.
     *
     * @throws LbdException without an endpoint
     */
    public function first(): Attempt
    {
        try {
            return $this->take();
        } catch (Unavailable $error) {
            if ($error->reason !== '' || $this->client->fallback === null || $this->deadline->passed()) {
                throw $error; // lbd answered, or it is too late
            }
            $this->fallback = true;
            return new Attempt($this, $this->client->fallback, 1);
        }
    }

    /** @internal tells the program that a try has ended */
    public function ended(Attempt $attempt, string $outcome, float $duration, ?int $status, ?\Throwable $error): void
    {
        [$method, $url] = match (true) {
            $this->request instanceof UpstreamRequest => [$this->request->method, $this->request->url],
            $this->request !== null => [$this->request->getMethod(), (string) $this->request->getUri()],
            default => ['', ''],
        };
        $this->client->hooks?->attempted(new Tried($attempt->choice(), $outcome, $duration, $method, $url, $status, $error));
    }

    /** @internal remembers that a try failed. If nothing was sent, lbd is told at once. */
    public function failed(string $cluster, string $address, bool $unsent, bool $cut): void
    {
        $this->unsent = $unsent;
        $this->cut = $this->cut || $cut;
        if ($this->fallback) {
            return;
        }
        $this->cluster->failed($address, !$unsent);
        if ($unsent && $this->lease === null) {
            $this->client->background->unreachable($cluster, $address);
        }
    }

    /**
     * The next try after one that failed; null if the result of that one is the result of the request.
     *
     * A try fails if it is not sent, if its connection ends before the status line, or with a status of
     * RETRIED_STATUSES. One that was not sent may be of any request, and is no retry for the limits.
     *
     * @param bool $unread whether nothing of the body was read, or it can be read again
     */
    public function retry(bool $unread = true): ?Attempt
    {
        $this->client->advance(); // notices that this is a child
        [$unsent, $this->unsent] = [$this->unsent, null];
        $this->moves += (int) $unsent;
        $permitted = $unsent ? $unread
            : $this->cluster->permitsRetry() && $this->repeatable && count($this->tried) - $this->moves <= $this->client->retries;
        if (!$permitted || $this->fallback || count($this->tried) >= Cluster::TRIED_MAX || !$this->goesOn()) {
            return null;
        }
        try {
            $wait = new Deadline($unsent !== null ? $this->deadline->atMost(self::OTHER_TIME) : 0.0);
            return $this->cluster->source === null || $this->query !== '' || ($this->cluster->source->batch()->query ?? '') !== ''
                ? $this->askOther($unsent ? 'unreachable' : 'error', $wait)
                : $this->other($this->cluster->source, $wait);
        } catch (LbdException) {
            return null;
        }
    }

    private function askOther(string $outcome, Deadline $wait): ?Attempt
    {
        // lbd may need the place of the lease in the circuit breaker.
        $ended = $this->lease === null || $this->client->background->leases->endFailed($this->lease, $outcome, $this->deadline);
        while ($ended && $this->goesOn()) {
            try {
                return $this->ask();
            } catch (Unavailable $error) {
                if ($error->reason !== 'all_excluded' || (!$this->cut && $wait->passed())) {
                    return null;
                }
                if ($this->cut) {
                    return $this->excluding([]);
                }
                $this->client->tick($wait->atMost(self::ASK_PAUSE));
            }
        }
        return null;
    }

    /**
     * A try at an address of the batch that was not tried; the last resort is one that had too little time. Without one,
     * it waits for another batch: lbd hears of connects that failed, and may choose another priority.
     */
    private function other(Source $source, Deadline $wait): ?Attempt
    {
        $untried = fn (string $address): bool => !in_array($address, $this->tried, true);
        while (true) {
            $batch = $source->batch();
            $element = $batch?->draw(fn (string $address): bool => $untried($address) && !$this->cluster->asides->avoids($address))
                ?? $batch?->draw($untried)
                ?? ($this->cut ? $batch?->draw(fn (string $address): bool => !$untried($address)) : null);
            if ($batch !== null && $element !== null) {
                return $this->at($batch->address($element, $this->cluster->name), null, $batch, $element);
            }
            if ($wait->passed() || !$this->goesOn()) {
                return null;
            }
            $this->client->tick($wait->atMost(self::LOOK_PAUSE));
            if ($source instanceof SharedBatch) {
                $source->renew($wait);
            }
        }
    }

    /** @internal whether there is time for another try */
    public function hasTime(): bool
    {
        return $this->deadline->atMost(1.0) >= self::RETRY_TIME;
    }

    /** Whether there may be another try: there is time, and this is the client's process, and it is not closed. */
    private function goesOn(): bool
    {
        return $this->hasTime()
            && $this->epoch === $this->client->background->epoch
            && !$this->client->isClosed();
    }

    private function take(): Attempt
    {
        if ($this->cluster->source === null || $this->query !== '') {
            return $this->ask();
        }
        [$batch, $element] = $this->cluster->source->take($this->deadline);
        return $this->at($batch->address($element, $this->cluster->name), null, $batch, $element);
    }

    /** A try at an address that lbd picks: none that was tried, and none that is set aside unless there is no other. */
    private function ask(): Attempt
    {
        $avoided = array_diff($this->cluster->asides->avoided(), $this->tried);
        sort($avoided);
        try {
            return $this->excluding([...$this->tried, ...$avoided]);
        } catch (Unavailable $error) {
            return $avoided !== [] && $error->reason === 'all_excluded' ? $this->excluding($this->tried) : throw $error;
        }
    }

    /**
     * A try at an address that lbd picks, or has picked for others that ask the same. It is none of these.
     *
     * @param list<string> $addresses
     */
    private function excluding(array $addresses): Attempt
    {
        $excluded = '';
        foreach (array_slice($addresses, 0, Cluster::TRIED_MAX) as $address) {
            $excluded .= '&exclude=' . rawurlencode($address);
        }
        if ($this->cluster->source === null) {
            return $this->pick($this->query . $excluded);
        }
        [$batch, $element] = $this->cluster->source->takeAsked($this->query, $excluded, $this->tried === [], $this->deadline);
        return $this->at($batch->address($element, $this->cluster->name), null, $batch, $element);
    }

    /**
     * @param Batch|array<mixed> $picked the batch of an element, or the answer of lbd
     * @throws Unavailable if the deadline passed while lbd answered: no endpoint is to blame
     */
    private function at(string $address, ?string $lease, Batch|array $picked, int $element = 0): Attempt
    {
        if ($this->deadline->passed()) {
            if ($lease !== null) {
                $this->client->background->leases->end($lease, 'cancelled');
            }
            $name = $this->cluster->name;
            throw new Unavailable("cluster $name: no time was left to send the request", $name);
        }
        $again = $this->tried !== [] && in_array($address, $this->tried, true);
        $this->cut = $this->cut && !$again;
        $this->tried[] = $address;
        $this->lease = $lease;
        if (!$picked instanceof Batch) {
            $this->cluster->picked = Deadline::now();
            $this->cluster->asides->avoids($address); // this may be the trial
        }
        return new Attempt($this, $address, count($this->tried), $picked, $element, $lease, $this->moves < Connects::HURRIED && !$again);
    }

    private function pick(string $query): Attempt
    {
        $name = $this->cluster->name;
        $wait = $this->deadline->atMost(self::WAIT_MAX);
        $path = '/v1/pick?' . Host::parameter($name) . '&wait=' . Api::duration($wait) . $query;
        $ttl = null;
        if ($this->client->mode === 'lease') {
            $left = $this->deadline->left();
            $ttl = min(self::LEASE_MAX, $left === null ? $this->client->ttl : $left + self::LEASE_GRACE);
            $path .= '&ttl=' . Api::duration($ttl) . '&owner=' . rawurlencode($this->client->owner());
        }
        try {
            $answer = $this->client->api->call($ttl === null ? 'GET' : 'POST', $path, null, $name, $wait + Api::CALL_TIMEOUT);
        } catch (Unreachable $error) {
            throw $error->of($name);
        }
        $lease = $answer['lease']['id'] ?? null;
        $address = $answer['address'] ?? null;
        if (!Batch::isAddress($address) || ($ttl !== null && !is_string($lease))) {
            throw (new Unreachable('the answer is not a pick'))->of($name);
        }
        if ($ttl !== null) {
            $this->client->background->leases->hold($lease, $ttl, $this->deadline);
        }
        return $this->at($address, $ttl === null ? null : $lease, $answer);
    }
}
