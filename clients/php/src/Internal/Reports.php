<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;

/** The reports of a process that lives for long. */
final class Reports
{
    /** Endpoints in one report, at most. */
    public const ENDPOINTS = 1000;

    private float $due;
    private int $sending = 0;

    public function __construct(private readonly Api $api, private readonly float $interval)
    {
        $this->due = Deadline::now() + $interval;
    }

    /** @param array<string, Counts> $clusters counts by cluster */
    public function advance(array $clusters, string $reporter): void
    {
        $now = Deadline::now();
        if ($now >= $this->due && $this->sending === 0) {
            $this->due = $now + $this->interval;
            $this->send($clusters, $reporter);
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

    /** Whether lbd has got, or refused, all reports that were sent. */
    public function settled(): bool
    {
        return $this->sending === 0;
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
        $this->due = Deadline::now() + $this->interval;
    }
}
