<?php

declare(strict_types=1);

namespace Lbd;

use Lbd\Internal\Batch;
use Lbd\Internal\Cluster;
use Lbd\Internal\Counts;
use Lbd\Internal\Deadline;

/**
 * One try of a request, at one address. An adapter calls answered, failed or unsent, then finish.
 *
 * A try that is forgotten without finish is one that its caller gave up.
 */
final class Attempt
{
    /** Seconds to connect. */
    public readonly float $connectTimeout;

    private string $outcome = '';
    private bool $finished = false;
    private ?int $status = null;
    private ?\Throwable $error = null;

    /** The duration that the hook was not told yet. */
    private ?float $untold = null;
    private readonly Client $client;
    private readonly Cluster $cluster;
    private readonly int $epoch;
    private readonly float $begin;

    /** That of the cluster that was chosen. */
    private readonly ?Counts $counts;

    /**
     * @internal
     * @param string $address HOST:PORT
     * @param int $number 1 for the first try of a request
     * @param Batch|array<mixed>|null $picked the batch of an element, or the answer of lbd; null for a fallback
     * @param bool $hurries whether it has less time to connect, because there may be other endpoints
     */
    public function __construct(
        private readonly Call $call,
        public readonly string $address,
        public readonly int $number,
        private readonly Batch|array|null $picked = null,
        private readonly int $element = 0,
        private readonly ?string $lease = null,
        bool $hurries = false,
    ) {
        $this->client = $call->client;
        $this->cluster = $call->cluster;
        $this->epoch = $this->client->background->epoch;
        $this->connectTimeout = min($this->client->connectTimeout, $hurries ? $this->cluster->connects->limit() : INF);
        $counted = $this->cluster->target && $picked instanceof Batch ? $this->client->cluster($this->fields()[0]) : $this->cluster;
        $this->counts = $picked instanceof Batch ? $counted->counts : null;
        $this->begin = $this->counts?->begin($address) ?? Deadline::now();
        if ($call->ask !== null) {
            $call->ask->choice = $this->choice();
        }
    }

    /** @return array{string, string, string, string, string, int} */
    private function fields(): array
    {
        return ($this->picked instanceof Batch ? $this->picked->chosen($this->element) : null)
            ?? Batch::fields(is_array($this->picked) ? $this->picked : [], $this->cluster->name);
    }

    /** What lbd has chosen. */
    public function choice(): Choice
    {
        [$cluster, $hostname, $region, $zone, $subZone, $priority] = $this->fields();
        $locality = ['region' => $region, 'zone' => $zone, 'sub_zone' => $subZone];
        return new Choice($cluster, $this->address, $hostname, $locality, $priority, $this->number);
    }

    /** A connection was made in these seconds. */
    public function connected(float $took): void
    {
        $this->cluster->connects->add($took);
    }

    /** The status and the headers of the response are there; the request is in flight until finish. */
    public function answered(int $status): void
    {
        if (!in_array($status, Call::RETRIED_STATUSES, true)) {
            $this->cluster->budget->succeeded();
        }
        $this->cluster->asides->answered($this->address);
        $this->status = $status;
        $this->ended($status >= 500 ? 'error' : 'success');
    }

    /** The connection failed after it was made, or the deadline passed then. */
    public function failed(?\Throwable $error = null): void
    {
        $this->error = $error;
        $this->fails('error', false);
    }

    /** There was no connection. $timedOut says whether that is because it took too long. */
    public function unsent(bool $timedOut, ?\Throwable $error = null): void
    {
        $this->error = $error;
        if ($timedOut && !$this->hasTime()) { // lbd hears nothing of it
            $this->fails('cancelled', false);
            return;
        }
        $limit = $this->client->connectTimeout;
        $this->fails('unreachable', $timedOut && $this->connectTimeout < $limit && Deadline::now() - $this->begin < $limit);
    }

    /** Whether a timeout is not that of the request. */
    public function hasTime(): bool
    {
        return $this->call->hasTime();
    }

    private function fails(string $outcome, bool $cut): void
    {
        if ($this->outcome === '' && $this->epoch === $this->client->background->epoch) {
            $this->ended($outcome, $outcome !== 'cancelled');
            $this->call->failed($this->cluster->target ? $this->fields()[0] : $this->cluster->name, $this->address, $outcome === 'unreachable', $cut);
        }
        $this->finish();
    }

    /** The request is no longer in flight. Without an outcome, its caller has given it up. */
    public function finish(): void
    {
        if ($this->finished) {
            return;
        }
        $this->ended('cancelled');
        $this->finished = true;
        $this->tell();
        if ($this->epoch !== $this->client->background->epoch) {
            return; // it is the parent's
        }
        $this->counts?->finished($this->address);
        if ($this->lease !== null) {
            $this->client->background->leases->end($this->lease, $this->outcome);
        }
        $this->client->advance();
    }

    private function ended(string $outcome, bool $counted = true): void
    {
        if ($this->outcome === '') {
            $this->outcome = $outcome;
            if ($this->epoch === $this->client->background->epoch) {
                $counted && $this->counts?->ended($this->address, $outcome, $this->begin);
                $this->untold = $this->client->hooks === null ? null : Deadline::now() - $this->begin;
                $this->tell();
            }
        }
    }

    /** Calls the hook, but not within curl: it may send requests. Then finish does. */
    private function tell(): void
    {
        if ($this->untold !== null && !$this->client->api->transfers->isBusy()) {
            [$duration, $this->untold] = [$this->untold, null];
            $this->call->ended($this, $this->outcome, $duration, $this->status, $this->error);
        }
    }

    public function __destruct()
    {
        $this->finish();
    }
}
