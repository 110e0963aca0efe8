<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** Remembers the calls of its methods, each of which returns it: a logger, or a provider of spans. */
final class Recorder
{
    /** @var list<array{string, list<mixed>}> */
    public array $calls = [];

    /** @param list<mixed> $arguments */
    public function __call(string $name, array $arguments): self
    {
        $this->calls[] = [$name, $arguments];
        return $this;
    }
}
