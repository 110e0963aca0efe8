<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;

/** The reports of a process that lives for long. */
final class Reports
{
    /** Endpoints in one report, at most. */
    public const ENDPOINTS = 1000;

    /** A cluster with so many errors is reported after so many seconds already: outlier detection waits for that. */
    public const EARLY_ERRORS = 5;
    public const EARLY = 1.0;

    /** Seconds between two calls about connects that failed, at least. */
    private const TELL_PAUSE = 0.05;

    private float $due;
    private float $early = 0.0;
    private int $sending = 0;

    /** @var array<string, array<string, int>> how many connects failed, by cluster and address */
    private array $failures = [];

    private bool $telling = false;
    private float $told = -INF;

    public function __construct(private readonly Api $api, private readonly float $interval)
    {
        $this->due = Deadline::now() + $interval;
    }

    /** @param array<string, Counts> $clusters counts by cluster */
    public function advance(array $clusters, string $reporter): void
    {
        $now = Deadline::now();
        $due = $now >= $this->due;
        if (($due || $now >= $this->early) && $this->sending === 0) {
            $this->early = $now + self::EARLY;
            $this->due = $due ? $now + $this->interval : $this->due;
            $this->send(array_filter($clusters, static fn (Counts $counts): bool => $due || $counts->errors >= self::EARLY_ERRORS), $reporter);
        }
    }

    /**
     * @param array<string, Counts> $clusters
     * @param bool $last whether there is no next report: lbd may have got one whose answer did not come in time
     */
    public function send(array $clusters, string $reporter, bool $last = false): void
    {
        foreach ($clusters as $cluster => $counts) {
            [$begin, $taken] = $counts->take();
            foreach (array_chunk($taken, self::ENDPOINTS, true) as $part) {
                $report = self::report($reporter, Deadline::now() - $begin, (string) $cluster, $part);
                $this->sending++;
                $this->api->start('POST', '/v1/reports', function (array|Unreachable|LbdException $answer) use ($counts, $begin, $part, $last): void {
                    $this->sending--;
                    if (!is_array($answer) && !$last) {
                        $counts->giveBack($begin, $part);
                    }
                }, $report);
            }
        }
    }

    public function unreachable(string $cluster, string $address): void
    {
        if (isset($this->failures[$cluster][$address]) || count($this->failures, COUNT_RECURSIVE) < self::ENDPOINTS) {
            $this->failures[$cluster][$address] = 1 + ($this->failures[$cluster][$address] ?? 0);
        }
    }

    /**
     * Tells lbd of the connects that failed: of the first at once, of others after a pause, with one call at a time.
     * What cannot be sent is forgotten.
     *
     * @param \Closure(): string $reporter
     */
    public function tell(\Closure $reporter, float $pause = self::TELL_PAUSE): void
    {
        if ($this->failures === [] || $this->telling || Deadline::now() < $this->told + $pause) {
            return;
        }
        $clusters = [];
        foreach ($this->failures as $cluster => $counts) {
            $endpoints = [];
            foreach ($counts as $address => $count) {
                $endpoints[] = ['address' => $address, 'connect_failures' => $count];
            }
            $clusters[] = ['cluster' => (string) $cluster, 'endpoints' => $endpoints];
        }
        $this->failures = [];
        $this->telling = true;
        $this->told = Deadline::now();
        $this->api->start('POST', '/v1/reports', function (): void {
            $this->telling = false;
        }, ['reporter' => $reporter(), 'clusters' => $clusters]);
    }

    /** Whether lbd has got, or refused, all reports that were sent. */
    public function settled(): bool
    {
        return $this->sending === 0 && !$this->telling && $this->failures === [];
    }

    /**
     * The body of a report.
     *
     * @param array<string, Count> $endpoints
     * @return array<string, mixed>
     */
    public static function report(string $reporter, float $interval, string $cluster, array $endpoints): array
    {
        $entries = [];
        foreach ($endpoints as $address => $count) {
            $entries[] = $count->entry($address);
        }
        return [
            'reporter' => $reporter,
            'interval' => Api::duration(min(300.0, max(0.1, $interval))),
            'clusters' => [['cluster' => $cluster, 'endpoints' => $entries]],
        ];
    }

    /** Forgets the reports that the parent sends. */
    public function afterFork(): void
    {
        $this->sending = 0;
        $this->telling = false;
        $this->failures = [];
        $this->due = Deadline::now() + $this->interval;
    }
}
