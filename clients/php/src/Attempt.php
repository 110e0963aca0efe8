<?php

declare(strict_types=1);

namespace Lbd;

use Lbd\Internal\Cluster;

/**
 * One try of a request, at one address. An adapter calls answered or failed, then finish.
 *
 * A try that is forgotten without finish is one that its caller gave up.
 */
final class Attempt
{
    private string $outcome = '';
    private bool $finished = false;
    private readonly int $epoch;
    private readonly float $begin;

    /**
     * @internal
     * @param string $address HOST:PORT
     */
    public function __construct(
        private readonly Client $client,
        private readonly Cluster $cluster,
        public readonly string $address,
        private readonly ?string $lease,
        private readonly bool $counted,
    ) {
        $this->epoch = $client->background->epoch;
        $this->begin = $counted ? $cluster->counts->begin($address) : 0.0;
    }

    /** The status and the headers of the response are there; the request is in flight until finish. */
    public function answered(int $status): void
    {
        if (!in_array($status, Call::RETRIED_STATUSES, true)) {
            $this->cluster->budget->succeeded();
        }
        $this->ended($status >= 500 ? 'error' : 'success');
    }

    /** The connection failed, or the deadline passed. */
    public function failed(): void
    {
        $this->ended('error');
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
        if ($this->epoch !== $this->client->background->epoch) {
            return; // it is the parent's
        }
        if ($this->counted) {
            $this->cluster->counts->finished($this->address);
        }
        if ($this->lease !== null) {
            $this->client->background->leases->end($this->lease, $this->outcome);
        }
        $this->client->advance();
    }

    private function ended(string $outcome): void
    {
        if ($this->outcome === '') {
            $this->outcome = $outcome;
            if ($this->counted && $this->epoch === $this->client->background->epoch) {
                $this->cluster->counts->ended($this->address, $outcome, $this->begin);
            }
        }
    }

    public function __destruct()
    {
        $this->finish();
    }
}
