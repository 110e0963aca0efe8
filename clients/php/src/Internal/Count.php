<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** What happened at one endpoint since it was taken last. */
final class Count
{
    public int $requests = 0;
    public int $errors = 0;
    public int $cancelled = 0;
    public float $latency = 0.0;
    public float $inFlightSeconds = 0.0;
    public int $inFlight = 0;

    public function __construct(public float $since)
    {
    }

    public function advance(float $now): void
    {
        $this->inFlightSeconds += $this->inFlight * ($now - $this->since);
        $this->since = $now;
    }

    /** @return array<string, int|float|string> the endpoint of a report */
    public function entry(string $address): array
    {
        return [
            'address' => $address,
            'requests' => $this->requests,
            'errors' => $this->errors,
            'cancelled' => $this->cancelled,
            'in_flight_seconds' => round($this->inFlightSeconds, 6),
            'latency_seconds' => round($this->latency, 6),
        ];
    }
}
