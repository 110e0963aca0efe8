<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** The budget of retries of all processes of a php-fpm with one max. The tokens are an entry while some are missing. */
final class SharedBudget extends Budget
{
    private const UNIT = 1000;

    private readonly string $name;

    public function __construct(private readonly SharedMemory $memory, string $cluster, float $max)
    {
        parent::__construct($max);
        $this->name = "tokens:$max:$cluster";
    }

    public function failed(): bool
    {
        $this->memory->setOnce($this->name, (int) ($this->max * self::UNIT));
        $left = $this->memory->add($this->name, -self::UNIT);
        if ($left < 0) {
            $this->memory->set($this->name, 0);
        }
        return $left > $this->max * self::UNIT / 2;
    }

    public function succeeded(): void
    {
        if (is_int($this->memory->get($this->name)) && $this->memory->add($this->name, (int) (self::SUCCESS * self::UNIT)) >= $this->max * self::UNIT) {
            $this->memory->delete($this->name);
        }
    }
}
