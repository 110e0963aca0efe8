<?php

declare(strict_types=1);

namespace Lbd\Internal;

/** The batches of a cluster for what its requests ask, all of one generation: those that were used last. */
class Asked
{
    /** Batches of a cluster, at most. */
    protected const MOST = 1000;

    /** Bytes of their queries, about. */
    protected const BYTES = 4 << 20;

    private int $generation = 0;

    /** @var array<string, Batch> by query */
    private array $recent = [];

    /** @var array<string, Batch> by query: those that were not used since recent was full */
    private array $older = [];

    /** Bytes of the queries that were added to recent. */
    private int $bytes = 0;

    public function get(string $query): ?Batch
    {
        $batch = $this->recent[$query] ?? null;
        if ($batch === null && isset($this->older[$query])) {
            $this->add($batch = $this->older[$query]);
        }
        return $batch;
    }

    /** Keeps a batch, unless it is of an earlier generation than the others. One of a later generation replaces them. */
    public function put(Batch $batch): void
    {
        if ($batch->generation > $this->generation()) {
            $this->follow($batch->generation);
        }
        if ($batch->generation === null || $batch->generation === $this->generation()) {
            $this->add($batch);
        }
    }

    /** Forgets all batches of other generations than that of the cluster. */
    public function follow(?int $generation): void
    {
        if ($generation !== null && $generation !== $this->generation) {
            $this->generation = $generation;
            $this->recent = $this->older = [];
        }
    }

    public function clear(): void
    {
        $this->recent = $this->older = [];
    }

    protected function generation(): int
    {
        return $this->generation;
    }

    protected function add(Batch $batch): void
    {
        if (count($this->recent) >= self::MOST / 2 || $this->bytes >= self::BYTES / 2) {
            [$this->recent, $this->older, $this->bytes] = [[], $this->recent, 0];
        }
        $this->bytes += isset($this->recent[$batch->query]) ? 0 : strlen($batch->query);
        $this->recent[$batch->query] = $batch;
    }
}
