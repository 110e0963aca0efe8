<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** How the requests of this process to one cluster ended. */
final class Counts
{
    /** Seconds after which counts that could not be sent are forgotten. */
    public const MAX_AGE = 60.0;

    /** @var array<string, Count> by address */
    private array $endpoints = [];

    /** Requests that ended with error since the counts were taken last. */
    public int $errors = 0;

    private float $begin;

    public function __construct()
    {
        $this->begin = Deadline::now();
    }

    public function isEmpty(): bool
    {
        return $this->endpoints === [];
    }

    /** Counts a request as in flight, and returns the time. */
    public function begin(string $address): float
    {
        $now = Deadline::now();
        $count = $this->endpoints[$address] ??= new Count($now);
        $count->advance($now);
        $count->inFlight++;
        return $now;
    }

    /** Counts the outcome of a request: success, error, cancelled or unreachable. */
    public function ended(string $address, string $outcome, float $begin): void
    {
        $count = $this->endpoints[$address] ?? null;
        if ($count !== null && $outcome !== 'unreachable') { // that is no request
            $count->requests++;
            $count->latency += Deadline::now() - $begin;
            $count->errors += (int) ($outcome === 'error');
            $this->errors += (int) ($outcome === 'error');
            $count->cancelled += (int) ($outcome === 'cancelled');
        }
    }

    /** Counts a request as no longer in flight. */
    public function finished(string $address): void
    {
        $count = $this->endpoints[$address] ?? null;
        if ($count !== null) {
            $count->advance(Deadline::now());
            $count->inFlight--;
        }
    }

    /**
     * The counts since they were taken last, and the time when that was.
     *
     * @return array{float, array<string, Count>}
     */
    public function take(): array
    {
        $now = Deadline::now();
        [$begin, $this->begin, $this->errors] = [$this->begin, $now, 0];
        $taken = [];
        foreach ($this->endpoints as $address => $count) {
            $count->advance($now);
            if ($count->requests > 0 || $count->inFlightSeconds > 0) {
                $taken[$address] = $count;
            }
            unset($this->endpoints[$address]);
            if ($count->inFlight > 0) {
                $this->endpoints[$address] = $rest = new Count($now);
                $rest->inFlight = $count->inFlight;
            }
        }
        return [$begin, $taken];
    }

    /**
     * Adds counts that could not be sent to the next report, unless they are too old.
     *
     * @param array<string, Count> $taken
     */
    public function giveBack(float $begin, array $taken): void
    {
        $now = Deadline::now();
        if ($now - $begin > self::MAX_AGE) {
            return;
        }
        $this->begin = min($this->begin, $begin);
        foreach ($taken as $address => $count) {
            $sum = $this->endpoints[$address] ??= new Count($now);
            $sum->requests += $count->requests;
            $sum->errors += $count->errors;
            $this->errors += $count->errors;
            $sum->cancelled += $count->cancelled;
            $sum->latency += $count->latency;
            $sum->inFlightSeconds += $count->inFlightSeconds;
        }
    }

    /** Forgets what the parent counted and has in flight. */
    public function afterFork(): void
    {
        $this->endpoints = [];
        $this->errors = 0;
        $this->begin = Deadline::now();
    }
}
