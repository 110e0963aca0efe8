<?php

declare(strict_types=1);

namespace Lbd;

use Lbd\Exception\LbdException;
use Lbd\Exception\Unavailable;
use Lbd\Internal\Api;
use Lbd\Internal\Batch;
use Lbd\Internal\Cluster;
use Lbd\Internal\Deadline;
use Lbd\Internal\Unreachable;

/** One request to a cluster, with all of its tries. An adapter of an HTTP library gets it from Client::call. */
final class Call
{
    public const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'];
    public const RETRIED_STATUSES = [502, 503, 504];

    private const WAIT_MAX = 5.0;
    private const LEASE_GRACE = 5.0;
    private const LEASE_MAX = 600.0;

    /** Seconds that a retry needs: curl may end a try a moment before its time. */
    private const RETRY_TIME = 0.005;

    /** @var list<string> */
    private array $tried = [];

    /** The lease of the last try. */
    private ?string $lease = null;

    private readonly int $epoch;

    /** @internal */
    public function __construct(
        private readonly Client $client,
        private readonly Cluster $cluster,
        public readonly Deadline $deadline,
        private readonly bool $repeatable,
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
            return new Attempt($this->client, $this->cluster, $this->client->fallback, null, false);
        }
    }

    /**
     * The next try after one that failed; null if the result of that one is the result of the request.
     *
     * A try fails if the connection cannot be made or ends before the status line, or with a status of RETRIED_STATUSES.
     */
    public function retry(): ?Attempt
    {
        $this->client->advance(); // notices that this is a child
        $permitted = $this->cluster->budget->failed();
        $tries = count($this->tried); // 0 after a fallback
        if (!$permitted || !$this->repeatable || $tries === 0 || $tries > $this->client->retries || !$this->goesOn()) {
            return null;
        }
        try {
            if ($this->cluster->source === null) {
                // lbd may need the place of the lease in the circuit breaker.
                $ended = $this->lease === null || $this->client->background->leases->endFailed($this->lease, $this->deadline);
                return $ended && $this->goesOn() ? $this->pick() : null;
            }
            $address = $this->cluster->source->other($this->tried);
            return $address === null ? null : $this->at($address, null);
        } catch (LbdException) {
            return null;
        }
    }

    /** Whether there may be another try: there is time, and this is the client's process, and it is not closed. */
    private function goesOn(): bool
    {
        return $this->deadline->atMost(1.0) >= self::RETRY_TIME
            && $this->epoch === $this->client->background->epoch
            && !$this->client->isClosed();
    }

    private function take(): Attempt
    {
        return $this->cluster->source === null ? $this->pick() : $this->at($this->cluster->source->take($this->deadline), null);
    }

    /** @throws Unavailable if the deadline passed while lbd answered: no endpoint is to blame */
    private function at(string $address, ?string $lease): Attempt
    {
        if ($this->deadline->passed()) {
            if ($lease !== null) {
                $this->client->background->leases->end($lease, 'cancelled');
            }
            $name = $this->cluster->name;
            throw new Unavailable("cluster $name: no time was left to send the request", $name);
        }
        $this->tried[] = $address;
        $this->lease = $lease;
        return new Attempt($this->client, $this->cluster, $address, $lease, $this->cluster->source !== null);
    }

    private function pick(): Attempt
    {
        $name = $this->cluster->name;
        $wait = $this->deadline->atMost(self::WAIT_MAX);
        $path = '/v1/pick?cluster=' . rawurlencode($name) . '&wait=' . Api::duration($wait);
        foreach ($this->tried as $address) {
            $path .= '&exclude=' . rawurlencode($address);
        }
        $ttl = null;
        if ($this->client->mode === 'lease') {
            $left = $this->deadline->left();
            $ttl = min(self::LEASE_MAX, $left === null ? $this->client->ttl : $left + self::LEASE_GRACE);
            $path .= '&ttl=' . Api::duration($ttl) . '&owner=' . rawurlencode($this->client->owner());
        }
        try {
            $answer = $this->client->api->call($ttl === null ? 'GET' : 'POST', $path, null, $name, $wait + Api::CALL_TIMEOUT);
        } catch (Unreachable $error) {
            throw new Unavailable("cluster $name: lbd is unreachable: {$error->getMessage()}", $name, previous: $error);
        }
        $lease = $answer['lease']['id'] ?? null;
        $address = $answer['address'] ?? null;
        if (!Batch::isAddress($address) || ($ttl !== null && !is_string($lease))) {
            throw new Unavailable("cluster $name: lbd is unreachable: the answer is not a pick", $name);
        }
        if ($ttl !== null) {
            $this->client->background->leases->hold($lease, $ttl, $this->deadline);
        }
        return $this->at($address, $ttl === null ? null : $lease);
    }
}
