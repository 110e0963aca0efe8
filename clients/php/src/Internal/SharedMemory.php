<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** Entries of APCu, which all processes of a php-fpm share, with one prefix. */
final class SharedMemory
{
    /** Seconds after which the name of a claim is forgotten. */
    private const KEEP = 3600;

    public function __construct(private readonly string $prefix)
    {
    }

    public function get(string $name): mixed
    {
        return apcu_fetch($this->prefix . $name);
    }

    /**
     * The integers of many entries at once; those that are not there are missing.
     *
     * @param list<string> $names
     * @return array<string, int>
     */
    public function integers(array $names): array
    {
        $found = apcu_fetch(array_map(fn (string $name): string => $this->prefix . $name, $names));
        $integers = [];
        foreach (is_array($found) ? $found : [] as $name => $value) {
            if (is_int($value)) {
                $integers[substr($name, strlen($this->prefix))] = $value;
            }
        }
        return $integers;
    }

    /** Stores a value, for these seconds unless they are 0; it is missing later if the memory is full. */
    public function set(string $name, mixed $value, int $seconds = 0): bool
    {
        return apcu_store($this->prefix . $name, $value, $seconds);
    }

    /** Stores a value unless there is one, and returns the one that is there. */
    public function setOnce(string $name, mixed $value): mixed
    {
        return apcu_add($this->prefix . $name, $value) ? $value : $this->get($name);
    }

    public function delete(string $name): void
    {
        apcu_delete($this->prefix . $name);
    }

    /** Adds to an integer, which is 0 at first and again these seconds later unless they are 0, and returns the sum. */
    public function add(string $name, int $value, int $seconds = 0): int
    {
        return (int) apcu_inc($this->prefix . $name, $value, ttl: $seconds);
    }

    /**
     * Runs a function while no other process does. One that dies within it, or is slow, delays the others for a moment.
     *
     * @template T
     * @param \Closure(): T $function
     * @return T
     */
    public function locked(string $name, \Closure $function): mixed
    {
        for ($i = 0; $i < 100 && !apcu_add($this->prefix . $name, true, 1); $i++) {
            usleep(50);
        }
        try {
            return $function();
        } finally {
            apcu_delete($this->prefix . $name);
        }
    }

    /**
     * Whether this process may do what is named. After it returned true in one process, it returns false in all of
     * them for some seconds, or as long as postpone says. A process that dies meanwhile delays it no longer than that.
     */
    public function claim(string $name, float $seconds): bool
    {
        $now = hrtime(true);
        $due = $this->get($name);
        $next = $now + (int) ($seconds * 1e9);
        if (!is_int($due)) {
            return apcu_add($this->prefix . $name, $next, self::KEEP);
        }
        return $now >= $due && apcu_cas($this->prefix . $name, $due, $next);
    }

    /** Whether claim returns false for now. */
    public function isClaimed(string $name): bool
    {
        $due = $this->get($name);
        return is_int($due) && hrtime(true) < $due;
    }

    /** Lets claim return true after some seconds. */
    public function postpone(string $name, float $seconds, int $keep): void
    {
        $this->set($name, hrtime(true) + (int) ($seconds * 1e9), $keep);
    }
}
