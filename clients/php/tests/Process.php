<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** A process of a test. It ends with the object. */
final class Process
{
    private const DEADLINE = 120.0;

    /** @var ?resource */
    private $process;

    /** @var resource */
    public $stdin;

    /** @var resource */
    public $stdout;

    /**
     * @param list<string> $command
     * @param string $log where its standard error goes to
     * @param array<string, string> $environment in addition to that of the tests
     */
    public function __construct(array $command, string $log = '/dev/null', array $environment = [])
    {
        $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], ['file', $log, 'a']], $pipes, null, $environment + getenv());
        if ($process === false) {
            throw new \RuntimeException("cannot start $command[0]");
        }
        $this->process = $process;
        [$this->stdin, $this->stdout] = $pipes;
    }

    /** Waits until a condition is true. */
    public static function until(callable $condition, string $what): void
    {
        $end = microtime(true) + self::DEADLINE;
        while (!$condition()) {
            if (microtime(true) > $end) {
                throw new \RuntimeException('not within ' . self::DEADLINE . " s: $what");
            }
            usleep(10_000);
        }
    }

    public function running(): bool
    {
        return $this->process !== null && proc_get_status($this->process)['running'];
    }

    public function pid(): int
    {
        return $this->process === null ? 0 : proc_get_status($this->process)['pid'];
    }

    public function signal(int $signal): void
    {
        if ($this->process !== null) {
            proc_terminate($this->process, $signal);
        }
    }

    /** Waits until the process ends. */
    public function wait(): void
    {
        self::until(fn (): bool => !$this->running(), 'the process has ended');
        $this->process = null;
    }

    public function __destruct()
    {
        if ($this->running()) {
            $this->signal(SIGKILL);
            $this->wait();
        }
    }
}
