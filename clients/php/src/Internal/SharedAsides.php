<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** The addresses of a cluster to which tries of any process of a php-fpm have failed. */
final class SharedAsides extends Asides
{
    public function __construct(private readonly SharedMemory $memory, private readonly string $cluster)
    {
    }

    protected function known(): array
    {
        $known = $this->memory->get("aside:$this->cluster");
        return is_array($known) ? $known : [];
    }

    protected function change(\Closure $change): mixed
    {
        return $this->memory->locked("lock:$this->cluster", function () use ($change): mixed {
            $known = $this->known();
            $result = $change($known);
            $this->memory->set("aside:$this->cluster", $known, (int) (self::MAX + self::FORGET_TIME));
            return $result;
        });
    }
}
