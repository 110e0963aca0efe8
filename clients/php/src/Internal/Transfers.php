<?php

declare(strict_types=1);

namespace Lbd\Internal;

use CurlHandle;
use CurlMultiHandle;

/** Transfers of curl that run at the same time: calls to lbd in the background, and requests in the foreground. */
final class Transfers
{
    private CurlMultiHandle $multi;

    /** @var array<int, array{CurlHandle, \Closure(int): void}> transfers by the ID of their handle */
    private array $running = [];

    public function __construct()
    {
        $this->multi = curl_multi_init();
        curl_multi_setopt($this->multi, CURLMOPT_MAXCONNECTS, 100);
    }

    /**
     * Starts a transfer. It goes on within advance and wait.
     *
     * @param \Closure(int): void $done called once with the error of curl, 0 for none
     */
    public function start(CurlHandle $handle, \Closure $done): void
    {
        $this->running[spl_object_id($handle)] = [$handle, $done];
        curl_multi_add_handle($this->multi, $handle);
        curl_multi_exec($this->multi, $active); // sends it, if the connection is there
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
        if ($this->running === []) {
            return;
        }
        curl_multi_exec($this->multi, $active);
        while ($info = curl_multi_info_read($this->multi)) {
            $handle = $info['handle'];
            curl_multi_remove_handle($this->multi, $handle);
            [, $done] = $this->running[spl_object_id($handle)] ?? [null, null];
            unset($this->running[spl_object_id($handle)]);
            if ($done !== null) {
                $done((int) $info['result']);
            }
        }
    }

    /** Waits until a transfer can go on, for at most these seconds, and advances. A signal ends the wait. */
    public function wait(float $seconds): void
    {
        if ($this->running === []) {
            usleep((int) (min($seconds, 0.5) * 1e6));
        } elseif (curl_multi_select($this->multi, $seconds) < 0) {
            usleep(1000); // curl has no descriptor to wait for yet
        }
        $this->advance();
    }
}
