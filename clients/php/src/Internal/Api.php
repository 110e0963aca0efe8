<?php

declare(strict_types=1);

namespace Lbd\Internal;

use CurlHandle;
use Lbd\Exception\LbdException;

/** lbd's HTTP API at one address. */
final class Api
{
    /** Seconds for a call, in addition to its wait. */
    public const CALL_TIMEOUT = 1.0;

    private const SOCKETS = ['/run/lbd.sock', '/run/lbd/lbd.sock'];
    private const MAX_ANSWER = 16 << 20;

    public Transfers $transfers;

    /** @var array<int, mixed> options of curl for all calls */
    private readonly array $options;

    private readonly string $base;

    private ?string $token;

    /** @throws \ValueError if the address is not valid */
    public function __construct(
        private readonly string $address,
        #[\SensitiveParameter] string $token,
        private readonly string $tokenFile,
        string $ca,
        private readonly string $found = 'the setting lbd',
        public readonly ?Hooks $hooks = null,
    ) {
        $this->transfers = new Transfers();
        $this->token = $token === '' && $tokenFile !== '' ? null : $token; // null: not read yet
        $options = [
            CURLOPT_PROXY => '',
            CURLOPT_NOSIGNAL => true,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_TCP_NODELAY => true,
        ];
        if (str_starts_with($address, 'unix:')) {
            $path = substr($address, str_starts_with($address, 'unix://') ? 7 : 5);
            $this->base = 'http://localhost';
            $options[CURLOPT_UNIX_SOCKET_PATH] = $path;
        } elseif (preg_match('~^https?://([\w.-]+|\[[0-9a-f:.]+])(:\d{1,5})?/*$~iD', $address) === 1) {
            $this->base = rtrim($address, '/');
            if ($ca !== '') {
                $options[CURLOPT_CAINFO] = $ca;
            }
        } else {
            throw new \ValueError("lbd: '$address' is not unix:PATH, http://HOST:PORT or https://HOST:PORT");
        }
        $this->options = $options;
    }

    public static function defaultAddress(): string
    {
        foreach (self::SOCKETS as $path) {
            if (@filetype($path) === 'socket') {
                return "unix:$path";
            }
        }
        return 'http://localhost:8080';
    }

    public static function duration(float $seconds): string
    {
        return max(0, (int) ($seconds * 1000)) . 'ms';
    }

    /**
     * Makes a call, and returns its answer.
     *
     * @param ?array<string, mixed> $body
     * @return array<mixed>
     * @throws Unreachable|LbdException
     */
    public function call(string $method, string $path, ?array $body = null, string $cluster = '', float $timeout = self::CALL_TIMEOUT): array
    {
        $result = null;
        $done = static function (array|Unreachable|LbdException $answer) use (&$result): void {
            $result = $answer;
        };
        $stop = $this->start($method, $path, $done, $body, $cluster, $timeout);
        try {
            while ($result === null) {
                $this->transfers->wait(1.0);
            }
        } finally { // a handler of a signal may throw
            $stop();
        }
        if ($result instanceof \Throwable) {
            throw $result;
        }
        return $result;
    }

    /**
     * Starts a call.
     *
     * @param \Closure(array<mixed>|Unreachable|LbdException): void $done
     * @param ?array<string, mixed> $body
     * @return \Closure(): void gives the call up
     */
    public function start(
        string $method,
        string $path,
        \Closure $done,
        ?array $body = null,
        string $cluster = '',
        float $timeout = self::CALL_TIMEOUT,
    ): \Closure {
        $this->token ??= $this->readToken();
        $used = $this->token;
        $content = '';
        $retryAfter = 0.0;
        $deadline = new Deadline($timeout);
        $handle = $this->handle($method, $path, $body, $content, $retryAfter);
        $again = null;
        $finish = function (int $error) use ($handle, $method, $path, $done, $body, $cluster, $timeout, $used, $deadline, &$content, &$retryAfter, &$again): void {
            if ($error !== 0) {
                $unreachable = $this->unreachable($method, $path, self::cause($handle, $error));
                // A call that its request ended, or that was within a callback of curl, says nothing.
                if ($error !== CURLE_FAILED_INIT && ($error !== CURLE_OPERATION_TIMEDOUT || $timeout >= self::CALL_TIMEOUT)) {
                    $this->hooks?->reached($unreachable);
                }
                $done($unreachable);
                return;
            }
            $status = (int) curl_getinfo($handle, CURLINFO_RESPONSE_CODE);
            if ($status === 401 && $this->tokenFile !== '') {
                $fresh = $this->readToken();
                if ($fresh !== $used) {
                    $this->token = $fresh;
                    $again = $this->start($method, $path, $done, $body, $cluster, max(0.001, (float) $deadline->left()));
                    return;
                }
            }
            $answer = $this->answer($method, $path, $cluster, $status, $content, $retryAfter);
            $this->hooks?->reached($answer);
            $done($answer);
        };
        $this->transfers->start($handle, $finish, $deadline);
        return function () use ($handle, &$again): void {
            $this->transfers->stop($handle);
            if ($again !== null) {
                $again();
            }
        };
    }

    /** An error that names the address of lbd, and how it was found. */
    private function unreachable(string $method, string $path, string $cause): Unreachable
    {
        return new Unreachable("$method " . strtok($path, '?') . " at $this->address ($this->found): $cause");
    }

    /** What curl says, but for a connect to a unix socket, for which it names a host. */
    private static function cause(CurlHandle $handle, int $error): string
    {
        $errno = $error === CURLE_COULDNT_CONNECT ? (int) curl_getinfo($handle, CURLINFO_OS_ERRNO) : 0;
        if ($errno !== 0 && function_exists('posix_strerror')) {
            return 'connect: ' . posix_strerror($errno);
        }
        return ($errno === 0 ? curl_error($handle) : '') ?: (string) curl_strerror($error);
    }

    /** @param ?array<string, mixed> $body */
    private function handle(string $method, string $path, ?array $body, string &$content, float &$retryAfter): CurlHandle
    {
        $headers = ['Accept: application/json', 'User-Agent: lbd-client-php'];
        if ($this->token !== '') {
            $headers[] = "Authorization: Bearer $this->token";
        }
        $handle = curl_init($this->base . $path);
        if ($handle === false) {
            throw new \RuntimeException('curl_init failed');
        }
        $options = $this->options + [
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_CONNECTTIMEOUT_MS => (int) (self::CALL_TIMEOUT * 1000),
            CURLOPT_WRITEFUNCTION => static function (CurlHandle $_, string $part) use (&$content): int {
                $content .= $part;
                return strlen($content) > self::MAX_ANSWER ? 0 : strlen($part);
            },
            CURLOPT_HEADERFUNCTION => static function (CurlHandle $_, string $line) use (&$retryAfter): int {
                if (preg_match('/^retry-after: *(\d{1,5})\s*$/i', $line, $match) === 1) {
                    $retryAfter = (float) $match[1];
                }
                return strlen($line);
            },
        ];
        if ($body !== null) {
            $headers[] = 'Content-Type: application/json';
            $options[CURLOPT_POSTFIELDS] = json_encode($body, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION);
        }
        $options[CURLOPT_HTTPHEADER] = $headers;
        curl_setopt_array($handle, $options);
        return $handle;
    }

    /** @return array<mixed>|Unreachable|LbdException */
    private function answer(string $method, string $path, string $cluster, int $status, string $content, float $retryAfter): array|Unreachable|LbdException
    {
        $answer = json_decode($content, true, 64);
        $answer = is_array($answer) ? $answer : null;
        if ($status === 200 || $status === 201) {
            if ($answer !== null && str_starts_with($path, '/v1/pick?') && !isset($answer['picks']) && !isset($answer['address'])) {
                return $this->unreachable($method, $path, 'the answer has no picks');
            }
            return $answer ?? $this->unreachable($method, $path, 'the answer is not JSON');
        }
        if (!is_string($answer['code'] ?? null) && !in_array($status, [401, 403, 429], true)) {
            return $this->unreachable($method, $path, "status $status without a code of lbd");
        }
        return LbdException::ofAnswer($cluster, $status, $answer ?? [], $retryAfter);
    }

    /** @return array<string, string> what dumps of variables show: not the token */
    public function __debugInfo(): array
    {
        return ['base' => $this->base, 'socket' => $this->options[CURLOPT_UNIX_SOCKET_PATH] ?? '', 'tokenFile' => $this->tokenFile];
    }

    private function readToken(): string
    {
        $token = @file_get_contents($this->tokenFile);
        return $token === false ? (string) $this->token : trim($token);
    }
}
