<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;

/** The leases of requests in flight, and those that lbd has to be told the end of. */
final class Leases
{
    /** Leases that one call ends, at most. */
    private const AT_ONCE = 1000;

    /** Ends that wait for lbd, at most. The others expire. */
    private const WAITING = 100_000;

    /** Calls that end leases at the same time. The end of one does not wait for another: the process may be idle then. */
    private const CALLS = 8;

    private const PAUSE = 0.5;

    /** Seconds between two tries to renew a lease, at most. */
    private const RENEW_PAUSE = 1.0;

    /** @var array<string, array{ttl: float, renewAt: float, deadline: Deadline}> leases of requests in flight by ID */
    private array $held = [];

    /** @var list<array{id: string, outcome: string}> */
    private array $ended = [];

    private int $sending = 0;
    private float $due = 0.0;
    private float $renewAt = INF;

    public function __construct(private readonly Api $api)
    {
    }

    /** Renews a lease until it is ended, or the deadline of its request has passed. */
    public function hold(string $id, float $ttl, Deadline $deadline): void
    {
        $at = Deadline::now() + $ttl / 2;
        $this->held[$id] = ['ttl' => $ttl, 'renewAt' => $at, 'deadline' => $deadline];
        $this->renewAt = min($this->renewAt, $at);
    }

    /** Ends a lease, beside the requests. */
    public function end(string $id, string $outcome): void
    {
        if (isset($this->held[$id])) {
            unset($this->held[$id]);
            if (count($this->ended) < self::WAITING) {
                $this->ended[] = ['id' => $id, 'outcome' => $outcome];
            }
            $this->advance();
        }
    }

    /**
     * Ends the lease of a try that failed, and waits for it. end does so again: lbd answers both alike. Returns whether
     * lbd has confirmed it: if not, it would not grant another lease, either.
     */
    public function endFailed(string $id, string $outcome, Deadline $deadline): bool
    {
        try {
            $timeout = $deadline->atMost(Api::CALL_TIMEOUT);
            $this->api->call('POST', '/v1/leases/done', ['leases' => [['id' => $id, 'outcome' => $outcome]]], '', $timeout);
            return true;
        } catch (Unreachable | LbdException) {
            return false;
        }
    }

    /** Ends the leases that are held: their requests are given up. */
    public function cancel(): void
    {
        foreach (array_keys($this->held) as $id) {
            $this->ended[] = ['id' => (string) $id, 'outcome' => 'cancelled'];
        }
        $this->held = [];
        $this->advance();
    }

    /** Whether lbd knows the end of all leases that ended. */
    public function settled(): bool
    {
        return $this->sending === 0 && $this->ended === [];
    }

    /** Starts the calls that are due. */
    public function advance(): void
    {
        $now = Deadline::now();
        if ($this->sending < self::CALLS && $this->ended !== [] && $now >= $this->due) {
            $this->send();
        }
        if ($now >= $this->renewAt) {
            $this->renew($now);
        }
    }

    private function send(): void
    {
        $sent = array_splice($this->ended, 0, self::AT_ONCE);
        $this->sending++;
        $this->api->start('POST', '/v1/leases/done', function (array|Unreachable|LbdException $answer) use ($sent): void {
            $this->sending--;
            if ($answer instanceof Unreachable && count($this->ended) < self::WAITING) {
                $this->ended = array_merge($sent, $this->ended);
                $this->due = Deadline::now() + self::PAUSE;
            }
            $this->advance();
        }, ['leases' => $sent]);
    }

    private function renew(float $now): void
    {
        $this->renewAt = INF; // end calls advance
        foreach ($this->held as $id => $lease) {
            if ($now < $lease['renewAt']) {
                continue;
            }
            if ($lease['deadline']->passed()) { // a promise that its caller has forgotten
                $this->end((string) $id, 'cancelled');
            } else {
                $this->held[$id]['renewAt'] = $now + $lease['ttl'] / 2;
                $done = fn (array|Unreachable|LbdException $answer) => is_array($answer) || $this->notRenewed($id, $answer);
                $this->api->start('POST', "/v1/leases/$id/renew?ttl=" . Api::duration($lease['ttl']), $done);
            }
        }
        $this->renewAt = $this->held === [] ? INF : min(array_column($this->held, 'renewAt'));
    }

    private function notRenewed(string|int $id, Unreachable|LbdException $error): void
    {
        if ($error instanceof LbdException && $error->reason === 'unknown_lease') {
            unset($this->held[$id]); // it has expired: the request goes on without it
        } elseif (isset($this->held[$id])) {
            $at = Deadline::now() + min(self::RENEW_PAUSE, $this->held[$id]['ttl'] / 8);
            $this->held[$id]['renewAt'] = $at;
            $this->renewAt = min($this->renewAt, $at);
        }
    }

    /** Forgets all: the leases are those of the parent. */
    public function afterFork(): void
    {
        $this->held = $this->ended = [];
        $this->sending = 0;
        $this->renewAt = INF;
    }
}
