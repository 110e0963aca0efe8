<?php

declare(strict_types=1);

namespace Lbd\Tests;

use PHPUnit\Framework\TestCase;

/** Programs that end, fork, wait and get signals. */
final class ProcessTest extends TestCase
{
    private Daemon $daemon;
    private Upstream $upstream;

    protected function setUp(): void
    {
        $this->daemon = new Daemon();
        $this->upstream = new Upstream();
        $this->daemon->push('orders', [$this->upstream->address]);
    }

    private function script(string $what): Process
    {
        return new Process([PHP_BINARY, __DIR__ . '/script.php', $what, $this->daemon->lbd], 'php://stderr');
    }

    private function complete(string $what): void
    {
        $this->script($what)->wait();
    }

    public function testReportsAtTheEnd(): void
    {
        $this->complete('end');
        self::assertSame(5, $this->daemon->reported('orders', 'success'));
    }

    public function testReportsWhenTheClientIsForgotten(): void
    {
        $this->complete('out of scope');
        self::assertSame(5, $this->daemon->reported('orders', 'success'));
    }

    public function testForks(): void
    {
        $this->complete('fork');
        self::assertSame(40, $this->daemon->reported('orders', 'success'));
        self::assertCount(40, $this->upstream->requests());
    }

    public function testAChildDoesNotEndTheLeasesOfItsParent(): void
    {
        $script = $this->script('lease fork');
        self::assertSame("forked\n", fgets($script->stdout));
        self::assertSame(1, $this->daemon->inFlight('orders'));
        fwrite($script->stdin, "\n");
        $script->wait();
        self::assertSame(0, $this->daemon->inFlight('orders'));
        self::assertSame(5, $this->daemon->metric('lbd_leases_finished_total{cluster="orders",outcome="success"}'));
    }

    public function testASignalEndsARequestInFlight(): void
    {
        $script = $this->script('lease SIGTERM');
        fgets($script->stdout);
        Process::until(fn (): bool => $this->upstream->requests() !== [], 'the request has arrived');
        $script->signal(SIGTERM);
        $script->wait();
        self::assertSame(1, $this->daemon->metric('lbd_leases_finished_total{cluster="orders",outcome="cancelled"}'));
    }

    public function testAnExceptionOfAHandlerEndsTheLease(): void
    {
        $script = $this->script('lease exception');
        fgets($script->stdout);
        Process::until(fn (): bool => $this->upstream->requests() !== [], 'the request has arrived');
        $script->signal(SIGTERM);
        self::assertSame("caught\n", fgets($script->stdout));
        self::assertSame(1, $this->daemon->metric('lbd_leases_finished_total{cluster="orders",outcome="cancelled"}'));
        fwrite($script->stdin, "\n");
        $script->wait();
    }

    public function testRenewsLeases(): void
    {
        $script = $this->script('lease renew');
        self::assertSame("renewed\n", fgets($script->stdout));
        self::assertSame(1, $this->daemon->inFlight('orders'));
        fwrite($script->stdin, "\n");
        $script->wait();
        self::assertSame(0, $this->daemon->metric('lbd_leases_finished_total{cluster="orders",outcome="expired"}'));
    }

    public function testReportsWhileAProcessIsIdle(): void
    {
        $script = $this->script('tick');
        self::assertSame("sent\n", fgets($script->stdout));
        Process::until(fn (): bool => $this->daemon->reported('orders', 'success') === 3, 'the report has arrived');
        self::assertTrue($script->running());
    }

    public function testDoesNotBlameAnEndpointForItsOwnShortage(): void
    {
        $script = $this->script('shortage');
        self::assertSame("no descriptors\n", fgets($script->stdout));
        $script->wait();
        Process::until(fn (): bool => $this->daemon->reported('orders', 'success') === 1, 'the report has arrived');
        self::assertSame(0, $this->daemon->reported('orders', 'error'));
    }

    public function testEndsIfTheDaemonHangs(): void
    {
        $script = $this->script('lease SIGTERM');
        fgets($script->stdout);
        Process::until(fn (): bool => $this->upstream->requests() !== [], 'the request has arrived');
        $this->daemon->signal(SIGSTOP);
        try {
            $script->signal(SIGTERM);
            $script->wait();
            $this->addToAssertionCount(1);
        } finally {
            $this->daemon->signal(SIGCONT);
        }
    }

    public function testTheExampleWorks(): void
    {
        $process = new Process([PHP_BINARY, __DIR__ . '/../examples/orders.php', '42'], '/dev/null', ['LBD' => $this->daemon->lbd]);
        self::assertSame($this->upstream->address . "\n", stream_get_contents($process->stdout));
        self::assertSame(['/items/42'], array_column($this->upstream->requests(), 'path'));
        $this->daemon->stop();
        $process = new Process([PHP_BINARY, __DIR__ . '/../examples/orders.php'], '/dev/null', ['LBD' => $this->daemon->lbd]);
        self::assertSame("Orders cannot be shown now.\n", stream_get_contents($process->stdout));
    }
}
