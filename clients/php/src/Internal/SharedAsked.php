<?php

declare(strict_types=1);

namespace Lbd\Internal;

/**
 * The batches of a cluster for what requests to any process of a php-fpm ask. Each has a number, which its use renews;
 * those with long queries take more numbers.
 */
final class SharedAsked extends Asked
{
    public function __construct(private readonly SharedMemory $memory, private readonly string $cluster, private readonly float $keep)
    {
    }

    public function get(string $query): ?Batch
    {
        $entry = $this->memory->get($this->name($query));
        if (!is_array($entry) || ($entry[1] !== null && $entry[1] !== $this->generation())) {
            return null;
        }
        $batch = Batch::decode($entry[2]);
        $number = $this->memory->get("asked:$this->cluster");
        if ($batch !== null && is_int($number) && $number - $entry[0] > self::MOST / 2) {
            $this->add($batch);
        }
        return $batch;
    }

    public function follow(?int $generation): void
    {
        if ($generation !== null) {
            $this->memory->set("generation:$this->cluster", $generation);
        }
    }

    protected function generation(): int
    {
        $generation = $this->memory->get("generation:$this->cluster");
        return is_int($generation) ? $generation : 0;
    }

    protected function add(Batch $batch): void
    {
        $numbers = 1 + intdiv(strlen($batch->query) * self::MOST, self::BYTES);
        $number = $this->memory->add("asked:$this->cluster", $numbers);
        for ($i = $number - $numbers + 1; $i <= $number; $i++) {
            $slot = "slot:$this->cluster:" . $i % self::MOST;
            $old = $this->memory->get($slot);
            if (is_string($old) && ($this->memory->get($old)[0] ?? null) === $i - self::MOST) {
                $this->memory->delete($old);
            }
        }
        $name = $this->name($batch->query);
        $keep = (int) ceil($this->keep + 1);
        $this->memory->set($slot, $name, $keep);
        $this->memory->set($name, [$number, $batch->generation, $batch->encode()], $keep);
    }

    private function name(string $query): string
    {
        return "asked:$this->cluster\0" . hash('xxh128', $query);
    }
}
