<?php

declare(strict_types=1);

namespace Lbd\Internal;

/**
 * The addresses of a cluster to which tries have failed, as this process knows them.
 *
 * @phpstan-type Known array<string, array{unknown: int, pause: float, until: float, trial: bool}>
 */
class Asides
{
    /** Seconds for which an address is set aside. */
    private const FIRST = 1.0;
    public const MAX = 10.0;

    /** Tries in a row that were sent and got no answer, after which an address is set aside. */
    private const UNKNOWN_ENDS = 3;

    /** Seconds after which an address is forgotten, in the modes without a batch. */
    public const FORGET_TIME = 300.0;

    /** @var Known by address: unknown ends in a row; it is set aside if pause is not 0, until the trial, which may be under way */
    private array $known = [];

    /** @return Known */
    protected function known(): array
    {
        return $this->known;
    }

    /**
     * @template T
     * @param \Closure(Known): T $change gets a reference
     * @return T
     */
    protected function change(\Closure $change): mixed
    {
        return $change($this->known);
    }

    /** Whether requests avoid an address. When its time is over, one request is permitted: the trial. */
    public function avoids(string $address): bool
    {
        $aside = $this->known()[$address] ?? null;
        if ($aside === null || $aside['pause'] === 0.0) {
            return false;
        }
        return Deadline::now() < $aside['until'] || $this->change(static function (array &$known) use ($address): bool {
            $now = Deadline::now();
            $aside = $known[$address] ?? null; // another process may have been faster
            if ($aside === null || $aside['pause'] === 0.0 || $now < $aside['until']) {
                return $aside !== null && $aside['pause'] > 0;
            }
            $known[$address] = ['trial' => true, 'until' => $now + self::MAX] + $aside; // the next one if this never ends
            return false;
        });
    }

    /**
     * The addresses that requests avoid. The trial of another one begins when lbd has picked it.
     *
     * @return list<string>
     */
    public function avoided(): array
    {
        $known = $this->known();
        $now = Deadline::now();
        $old = array_keys(array_filter($known, static fn (array $aside): bool => $now > $aside['until'] + self::FORGET_TIME));
        if ($old !== []) {
            $this->change(static function (array &$known) use ($old): void {
                $known = array_diff_key($known, array_flip($old));
            });
        }
        $avoided = array_filter($known, static fn (array $aside): bool => $aside['pause'] > 0 && $now < $aside['until']);
        return array_map(strval(...), array_keys($avoided));
    }

    /** A try was not sent, or got no answer. $most is the number of addresses that may be set aside. */
    public function failed(string $address, bool $sent, int $most): void
    {
        $this->change(static function (array &$known) use ($address, $sent, $most): void {
            $now = Deadline::now();
            $aside = $known[$address] ?? ['unknown' => 0, 'pause' => 0.0, 'until' => $now, 'trial' => false];
            if ($sent && ++$aside['unknown'] < self::UNKNOWN_ENDS) {
                if ($aside['trial']) { // it was connected
                    $aside = ['pause' => 0.0, 'trial' => false] + $aside;
                }
            } elseif ($aside['trial'] || ($aside['pause'] === 0.0 && self::setAside($known) < $most)) { // not if it began before
                $aside['pause'] = $aside['pause'] === 0.0 ? self::FIRST : min(2 * $aside['pause'], self::MAX);
                $aside['until'] = $now + $aside['pause'] * mt_rand(800, 1200) / 1000;
                $aside['trial'] = false;
            }
            $known[$address] = $aside;
        });
    }

    /** @param Known $known */
    private static function setAside(array $known): int
    {
        return count(array_filter($known, static fn (array $aside): bool => $aside['pause'] > 0));
    }

    /** An endpoint has answered. */
    public function answered(string $address): void
    {
        if (isset($this->known()[$address])) {
            $this->change(static function (array &$known) use ($address): void {
                unset($known[$address]);
            });
        }
    }

    /**
     * Forgets all but these addresses.
     *
     * @param list<string> $addresses
     */
    public function keep(array $addresses): void
    {
        $addresses = array_flip($addresses);
        if (array_diff_key($this->known(), $addresses) !== []) {
            $this->change(static function (array &$known) use ($addresses): void {
                $known = array_intersect_key($known, $addresses);
            });
        }
    }
}
