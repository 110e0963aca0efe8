<?php

declare(strict_types=1);

namespace Lbd\Internal;

use CurlHandle;
use CurlMultiHandle;

/** Transfers of curl that run at the same time: calls to lbd in the background, and requests in the foreground. */
final class Transfers
{
    private CurlMultiHandle $multi;

    /** @var array<int, array{CurlHandle, \Closure(int): void, ?Deadline}> transfers by the ID of their handle */
    private array $running = [];

    /** Whether curl runs, which calls back: a destructor or a handler of a signal can get here from there. */
    private bool $busy = false;

    public function __construct()
    {
        $this->multi = curl_multi_init();
        curl_multi_setopt($this->multi, CURLMOPT_MAXCONNECTS, 100);
    }

    /**
     * Starts a transfer. It goes on within advance and wait.
     *
     * @param \Closure(int): void $done called once with the error of curl, 0 for none
     * @param ?Deadline $deadline ends the transfer unless it is complete. A timeout of curl would end it even so if
     *     nobody looked in time: the process may be idle
     */
    public function start(CurlHandle $handle, \Closure $done, ?Deadline $deadline = null): void
    {
        if ($this->busy) {
            $done(CURLE_FAILED_INIT);
            return;
        }
        $this->running[spl_object_id($handle)] = [$handle, $done, $deadline];
        curl_multi_add_handle($this->multi, $handle);
        $this->execute(); // sends it, if the connection is there
    }

    /** Whether this is within a callback of curl. */
    public function isBusy(): bool
    {
        return $this->busy;
    }

    /** Gives a transfer up. */
    public function stop(CurlHandle $handle): void
    {
        if (isset($this->running[spl_object_id($handle)])) {
            unset($this->running[spl_object_id($handle)]);
            curl_multi_remove_handle($this->multi, $handle);
        }
    }

    /** Does what can be done without waiting. */
    public function advance(): void
    {
        if ($this->running === [] || $this->busy) {
            return;
        }
        $this->execute();
        while ($info = curl_multi_info_read($this->multi)) {
            $this->finish($info['handle'], (int) $info['result']);
        }
        foreach ($this->running as [$handle, , $deadline]) {
            if ($deadline?->passed()) {
                $this->finish($handle, CURLE_OPERATION_TIMEDOUT);
            }
        }
    }

    private function execute(): void
    {
        $this->busy = true;
        try {
            curl_multi_exec($this->multi, $active);
        } finally {
            $this->busy = false;
        }
    }

    private function finish(CurlHandle $handle, int $error): void
    {
        $done = $this->running[spl_object_id($handle)][1] ?? null;
        $this->stop($handle);
        if ($done !== null) {
            $done($error);
        }
    }

    /** Waits until a transfer can go on, for at most these seconds, and advances. A signal ends the wait. */
    public function wait(float $seconds): void
    {
        $known = $this->running;
        $this->advance();
        if ($this->running !== $known) {
            return; // what has ended within start wakes nobody
        }
        foreach ($this->running as [, , $deadline]) {
            $seconds = $deadline?->atMost($seconds) ?? $seconds;
        }
        if ($this->running === [] || $this->busy) {
            usleep((int) (min($seconds, 0.5) * 1e6));
        } elseif (curl_multi_select($this->multi, $seconds) < 0) {
            usleep(1000); // curl has no descriptor to wait for yet
        }
        $this->advance();
    }
}
