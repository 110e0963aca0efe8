<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** The budget of retries of all processes of a php-fpm with one max. The entry has the tokens that are missing, absent 0. */
final class SharedBudget extends Budget
{
    private const UNIT = 1000;

    /** Seconds after the first token was taken, after which none is missing. */
    private const KEEP = 3600;

    private readonly string $name;

    public function __construct(private readonly SharedMemory $memory, string $cluster, float $max)
    {
        parent::__construct($max);
        $this->name = "missing:$max:$cluster";
    }

    public function failed(int $n = 0): bool
    {
        $size = $this->size($n) * self::UNIT;
        $missing = $this->memory->add($this->name, self::UNIT, self::KEEP);
        if ($missing > $size) { // also if batches have become smaller
            $this->memory->add($this->name, min(-self::UNIT, (int) $size - $missing), self::KEEP);
        }
        return $missing < $size / 2;
    }

    public function succeeded(): void
    {
        $missing = $this->memory->get($this->name);
        if (!is_int($missing) || $missing <= 0) {
            return;
        }
        $given = (int) (self::SUCCESS * self::UNIT);
        $missing = $this->memory->add($this->name, -$given, self::KEEP);
        if ($missing < 0) { // others gave back, too: each takes its part
            $this->memory->add($this->name, min($given, -$missing), self::KEEP);
        }
    }
}
