<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;

/**
 * The counts of all processes of a php-fpm, and their reports.
 *
 * Each process adds what it counted when its response has been sent. One of them sends the sums, each report_interval.
 * The addresses whose counts are summed are those of the batches of the last minutes.
 */
final class SharedCounts
{
    /** Seconds after its last batch that an address is known. */
    private const KNOWN_FOR = 600.0;

    public const CLUSTERS = 1000;
    private const FIELDS = ['requests', 'errors', 'cancelled', 'latency', 'inFlight'];
    private const MICROSECONDS = 1e6;

    public function __construct(private readonly Api $api, private readonly SharedMemory $memory, private readonly float $interval)
    {
    }

    /**
     * Adds the addresses of a batch.
     *
     * @param list<string> $addresses
     */
    public function know(string $cluster, array $addresses): void
    {
        $now = Deadline::now();
        $known = $this->known($cluster);
        $new = array_filter($addresses, static fn (string $address): bool => $now - ($known[$address] ?? -INF) > self::KNOWN_FOR / 10);
        if ($new !== []) {
            $this->memory->locked("lock known:$cluster", fn () => $this->addKnown($cluster, $addresses, $now));
        }
        $this->knowCluster($cluster, $now);
    }

    /** @param list<string> $addresses */
    private function addKnown(string $cluster, array $addresses, float $now): void
    {
        $seen = array_fill_keys($addresses, $now) + $this->known($cluster);
        arsort($seen);
        $kept = array_filter(
            array_slice($seen, 0, Reports::ENDPOINTS, true),
            // What is counted is reported first.
            fn (float $last, string $address): bool => $now - $last < self::KNOWN_FOR
                || array_filter($this->memory->integers($this->names($cluster, $address))) !== [],
            ARRAY_FILTER_USE_BOTH,
        );
        foreach (array_keys(array_diff_key($seen, $kept)) as $address) {
            foreach ($this->names($cluster, (string) $address) as $name) {
                $this->memory->delete($name);
            }
        }
        $this->memory->set("known:$cluster", $kept);
    }

    /** Forgets others without a batch for long if there are too many. */
    private function knowCluster(string $cluster, float $now): void
    {
        $clusters = $this->clusters();
        if ($now - ($clusters[$cluster] ?? -INF) < self::KNOWN_FOR / 10) {
            return; // it need not be exact
        }
        $clusters[$cluster] = $now;
        if (count($clusters) > self::CLUSTERS) {
            $old = array_filter($clusters, static fn (float $last): bool => $now - $last >= self::KNOWN_FOR);
            foreach (array_keys($old) as $name) {
                $this->forget((string) $name);
            }
            $clusters = array_diff_key($clusters, $old);
        }
        if (count($clusters) <= self::CLUSTERS) {
            $this->memory->set('clusters', $clusters);
        }
    }

    private function forget(string $cluster): void
    {
        foreach (array_keys($this->known($cluster)) as $address) {
            foreach ($this->names($cluster, (string) $address) as $name) {
                $this->memory->delete($name);
            }
        }
        $this->memory->delete("known:$cluster");
    }

    /** Adds what this process counted. */
    public function add(string $cluster, Counts $counts): void
    {
        $failed = $counts->errors > 0;
        [, $taken] = $counts->take();
        $this->addAll($cluster, $taken);
        if ($failed) {
            $names = array_map(fn (int|string $address): string => $this->names($cluster, (string) $address)[1], array_keys($this->known($cluster)));
            if (array_sum($this->memory->integers($names)) >= Reports::EARLY_ERRORS) {
                $this->memory->set('early', true);
            }
        }
    }

    /** Sends a report if it is time, and no other process does. */
    public function report(Deadline $deadline): void
    {
        $now = Deadline::now();
        $begin = $this->memory->get('reported'); // the end of the last report that arrived
        $early = is_float($begin) && $now - $begin >= Reports::EARLY && $this->memory->get('early') === true;
        if ($deadline->passed() || !($this->memory->claim('report', $this->interval) || ($early && $this->memory->claim('report early', Reports::EARLY)))) {
            return;
        }
        $this->memory->delete('early');
        if (!is_float($begin)) {
            $this->memory->set('reported', $now);
            return;
        }
        $arrived = $reachable = true;
        $old = $now - $begin > Counts::MAX_AGE;
        foreach (array_keys($this->clusters()) as $cluster) {
            if (!$reachable && !$old) {
                break; // one call that fails is enough: the others would take their time, too
            }
            $taken = $this->take((string) $cluster);
            if ($taken === []) {
                continue;
            }
            $sent = false;
            try {
                if ($reachable) {
                    $this->send((string) $cluster, $now - $begin, $taken, $deadline);
                    $sent = true;
                }
            } catch (Unreachable) {
                $reachable = false;
            } catch (LbdException) {
            }
            if (!$sent && !$old) {
                $this->addAll((string) $cluster, $taken);
            }
            $arrived = $arrived && $sent;
        }
        if ($arrived || $old) {
            $this->memory->set('reported', $now);
        }
    }

    /**
     * @param array<string, Count> $taken
     * @throws Unreachable|LbdException
     */
    private function send(string $cluster, float $interval, array $taken, Deadline $deadline): void
    {
        $report = Reports::report($this->reporter(), $interval, $cluster, $taken);
        $this->api->call('POST', '/v1/reports', $report, $cluster, $deadline->atMost(Api::CALL_TIMEOUT));
    }

    /** @return array<string, Count> */
    private function take(string $cluster): array
    {
        $now = Deadline::now();
        $taken = [];
        foreach (array_keys($this->known($cluster)) as $address) {
            $names = $this->names($cluster, (string) $address);
            $found = $this->memory->integers($names);
            $values = [];
            foreach ($names as $name) {
                $value = max(0, $found[$name] ?? 0);
                if ($value > 0) {
                    $left = $this->memory->add($name, -$value); // other processes may have added meanwhile
                    if ($left < 0) { // or deleted it, or APCu has
                        $this->memory->add($name, min($value, -$left));
                    }
                }
                $values[] = $value;
            }
            if (array_sum($values) > 0) {
                $count = $taken[$address] = new Count($now);
                [$count->requests, $count->errors, $count->cancelled] = $values;
                $count->latency = $values[3] / self::MICROSECONDS;
                $count->inFlightSeconds = $values[4] / self::MICROSECONDS;
            }
        }
        return $taken;
    }

    /** @param array<string, Count> $taken */
    private function addAll(string $cluster, array $taken): void
    {
        foreach ($taken as $address => $count) {
            $values = [
                $count->requests,
                $count->errors,
                $count->cancelled,
                (int) ($count->latency * self::MICROSECONDS),
                (int) ($count->inFlightSeconds * self::MICROSECONDS),
            ];
            foreach ($this->names($cluster, (string) $address) as $i => $name) {
                if ($values[$i] > 0) {
                    $this->memory->add($name, $values[$i]);
                }
            }
        }
    }

    /** @return list<string> */
    private function names(string $cluster, string $address): array
    {
        return array_map(static fn (string $field): string => "count:$cluster\0$address\0$field", self::FIELDS);
    }

    /** @return array<string, float> when each address was in a batch last */
    private function known(string $cluster): array
    {
        $known = $this->memory->get("known:$cluster");
        return is_array($known) ? array_filter($known, is_float(...)) : [];
    }

    /** @return array<string, float> when each cluster got a batch, within a minute */
    private function clusters(): array
    {
        $clusters = $this->memory->get('clusters');
        return is_array($clusters) ? array_filter($clusters, is_float(...)) : [];
    }

    /** The name of the memory: all processes that share it are one reporter. */
    public function reporter(): string
    {
        $id = $this->memory->setOnce('reporter', bin2hex(random_bytes(6)));
        return substr((string) gethostname(), 0, 100) . '/' . PHP_SAPI . '/' . (is_string($id) ? $id : '');
    }
}
