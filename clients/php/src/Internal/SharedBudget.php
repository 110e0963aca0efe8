<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** The budget of retries of all processes of a php-fpm. The tokens are an entry while some are missing. */
final class SharedBudget extends Budget
{
    private const UNIT = 1000;

    public function __construct(private readonly SharedMemory $memory, private readonly string $cluster, float $max)
    {
        parent::__construct($max);
    }

    public function failed(): bool
    {
        $name = "tokens:$this->cluster";
        $this->memory->setOnce($name, (int) ($this->max * self::UNIT));
        $left = $this->memory->add($name, -self::UNIT);
        if ($left < 0) {
            $this->memory->set($name, 0);
        }
        return $left > $this->max * self::UNIT / 2;
    }

    public function succeeded(): void
    {
        $name = "tokens:$this->cluster";
        if (is_int($this->memory->get($name)) && $this->memory->add($name, (int) (self::SUCCESS * self::UNIT)) >= $this->max * self::UNIT) {
            $this->memory->delete($name);
        }
    }
}
