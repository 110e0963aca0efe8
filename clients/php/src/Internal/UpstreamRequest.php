<?php

declare(strict_types=1);

namespace Lbd\Internal;

use CurlHandle;
use Lbd\Attempt;
use Lbd\Response;

/** One request to an upstream: what its tries have in common, and the response to the last one. */
final class UpstreamRequest
{
    /** @var list<CurlHandle> handles that were used, with their connections apart */
    private static array $free = [];

    private const FREE = 10;

    private readonly CurlHandle $handle;
    private int $status = 0;

    /** @var array<string, list<string>> */
    private array $responseHeaders = [];
    private string $responseBody = '';
    private bool $headersDone = false;

    /** @var list<string> */
    private readonly array $lines;

    /**
     * @param array<string, string|list<string>> $headers
     * @param ?resource $sink
     */
    public function __construct(
        public readonly string $method,
        public readonly string $url,
        private readonly string $body,
        public readonly array $headers,
        private readonly bool $repeatable,
        private readonly float $connectTimeout,
        private readonly ?string $ca,
        private readonly mixed $sink,
    ) {
        if (!self::isToken($method)) {
            throw new \ValueError('method: it is not valid');
        }
        $lines = ['Expect:'];
        $typed = false;
        foreach ($headers as $name => $values) {
            foreach ((array) $values as $value) {
                if (!self::isToken((string) $name) || strpbrk($value, "\r\n\0") !== false) {
                    throw new \ValueError("header: '$name' is not valid");
                }
                $lines[] = $value === '' ? "$name;" : "$name: $value"; // curl removes a header without a value
                $typed = $typed || strcasecmp((string) $name, 'content-type') === 0;
            }
        }
        if (!$typed) {
            $lines[] = 'Content-Type:'; // curl has a default
        }
        $this->lines = $lines;
        $this->handle = array_pop(self::$free) ?? curl_init();
    }

    private static function isToken(string $text): bool
    {
        return preg_match('/^[!#$%&\'*+.^_`|~0-9a-z-]+$/iD', $text) === 1;
    }

    /** The transfer to the address of an attempt, or to the host of the URL. */
    public function to(?Attempt $attempt, Deadline $deadline): CurlHandle
    {
        $this->status = 0;
        $this->responseHeaders = [];
        $this->responseBody = '';
        $this->headersDone = false;
        $left = max(1, (int) ceil($deadline->atMost(86400.0) * 1000));
        $options = [
            CURLOPT_URL => $this->url,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_TCP_NODELAY => true,
            CURLOPT_NOSIGNAL => true,
            CURLOPT_TIMEOUT_MS => $left,
            CURLOPT_CONNECTTIMEOUT_MS => max(1, min($left, (int) (($attempt?->connectTimeout ?? $this->connectTimeout) * 1000))),
            CURLOPT_HTTPHEADER => $this->lines,
            CURLOPT_HEADERFUNCTION => fn (CurlHandle $_, string $line): int => $this->header($line, $attempt),
            CURLOPT_WRITEFUNCTION => fn (CurlHandle $_, string $part): int => $this->write($part),
        ];
        if ($attempt !== null) {
            $options[CURLOPT_CONNECT_TO] = ["::$attempt->address"];
            $options[CURLOPT_PROXY] = '';
            $options += $this->ca === null ? [] : [CURLOPT_CAINFO => $this->ca];
        }
        curl_setopt_array($this->handle, $options + $this->payload());
        return $this->handle;
    }

    /** @return array<int, mixed> */
    private function payload(): array
    {
        if (strtoupper($this->method) === 'HEAD') {
            return [CURLOPT_NOBODY => true];
        }
        if ($this->repeatable) {
            return [CURLOPT_CUSTOMREQUEST => $this->method] + ($this->body === '' ? [] : [CURLOPT_POSTFIELDS => $this->body]);
        }
        // curl sends a request again if a connection that was open before ends without an answer. It does not if it has
        // no connection that was open before, or cannot get the body again.
        if ($this->body === '') {
            return [CURLOPT_CUSTOMREQUEST => $this->method, CURLOPT_POSTFIELDS => '', CURLOPT_FRESH_CONNECT => true];
        }
        $sent = 0;
        return [
            CURLOPT_CUSTOMREQUEST => $this->method,
            CURLOPT_UPLOAD => true,
            CURLOPT_INFILESIZE => strlen($this->body),
            CURLOPT_READFUNCTION => function (CurlHandle $_, mixed $file, int $length) use (&$sent): string {
                $part = substr($this->body, $sent, $length);
                $sent += strlen($part);
                return $part;
            },
        ];
    }

    private function header(string $line, ?Attempt $attempt): int
    {
        if (preg_match('~^HTTP/[\d.]+ (\d{3})~', $line, $match) === 1) {
            $this->status = (int) $match[1];
            $this->responseHeaders = [];
        } elseif (trim($line) === '') {
            if ($this->status >= 200 && !$this->headersDone) {
                $this->headersDone = true;
                $attempt?->answered($this->status);
            }
        } elseif (!$this->headersDone) { // and not a trailer
            [$name, $value] = explode(':', $line, 2) + ['', ''];
            $this->responseHeaders[strtolower(trim($name))][] = trim($value);
        }
        return strlen($line);
    }

    private function write(string $part): int
    {
        if ($this->sink === null || in_array($this->status, \Lbd\Call::RETRIED_STATUSES, true)) {
            $this->responseBody .= $part;
            return strlen($part);
        }
        return (int) fwrite($this->sink, $part);
    }

    /** Whether the status line is there. */
    public function answered(): bool
    {
        return $this->status >= 200;
    }

    public function response(): Response
    {
        return new Response($this->status, $this->responseHeaders, $this->responseBody);
    }

    /** Gives the handle back after the last try. */
    public function release(): void
    {
        curl_reset($this->handle);
        if (count(self::$free) < self::FREE) {
            self::$free[] = $this->handle;
        }
    }
}
