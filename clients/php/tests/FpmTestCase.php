<?php

declare(strict_types=1);

namespace Lbd\Tests;

use PHPUnit\Framework\TestCase;

/** A test of scripts that a real php-fpm runs. */
abstract class FpmTestCase extends TestCase
{
    protected const WORKERS = 8;

    protected Daemon $daemon;
    protected Fpm $fpm;

    protected function setUp(): void
    {
        $this->daemon = new Daemon();
        $this->fpm = new Fpm(self::WORKERS);
    }

    /**
     * @param array<string, mixed> $settings
     * @param array<string, mixed> $more
     * @return array<string, mixed>
     */
    protected function input(array $settings = [], array $more = []): array
    {
        return ['settings' => $settings + ['lbd' => $this->daemon->lbd], 'url' => 'http://orders.lbd/'] + $more;
    }

    /**
     * Sends requests, as many at a time as there are workers.
     *
     * @param array<string, mixed> $input
     * @return list<array<string, mixed>>
     */
    protected function parallel(int $n, array $input): array
    {
        $answers = [];
        while ($n > 0) {
            $sent = [];
            for ($i = min($n, self::WORKERS); $i > 0; $i--, $n--) {
                $sent[] = $this->fpm->send($input);
            }
            foreach ($sent as $socket) {
                $answers[] = $this->fpm->receive($socket);
            }
        }
        return $answers;
    }

    protected function picks(): int
    {
        return $this->daemon->metric('lbd_http_requests_total{code="200",method="GET",route="/v1/pick"}');
    }
}
