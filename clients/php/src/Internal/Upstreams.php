<?php

declare(strict_types=1);

namespace Lbd\Internal;

use CurlHandle;
use Lbd\Ask;
use Lbd\Attempt;
use Lbd\Call;
use Lbd\Client;
use Lbd\Exception\ConnectionFailed;
use Lbd\Exception\TimedOut;
use Lbd\Response;

/** Sends requests to upstreams with curl. */
final class Upstreams
{
    public function __construct(private readonly Client $client)
    {
    }

    /**
     * @param array<string, string|list<string>> $headers
     * @param ?resource $sink
     */
    public function request(string $method, string $url, string $body, array $headers, float $timeout, ?bool $idempotent, mixed $sink, ?Ask $ask): Response
    {
        $host = parse_url($url, PHP_URL_HOST);
        if (preg_match('~^https?://[^\s/][^\s\0-\37\177]*$~iD', $url) !== 1 || !is_string($host)) {
            throw new \ValueError('url: ' . self::shown($url) . ' is not http://HOST/PATH or https://HOST/PATH');
        }
        $names = array_map(static fn (int|string $name): string => strtolower((string) $name), array_keys($headers));
        $idempotent ??= in_array(strtoupper($method), Call::IDEMPOTENT, true) || in_array('idempotency-key', $names, true);
        $request = new UpstreamRequest($method, $url, $body, $headers, $idempotent, $this->client->connectTimeout, $this->client->upstreamCa, $sink);
        try {
            $this->client->advance();
            $for = $this->client->host($host);
            return $for === null
                ? $this->send($request, null, new Deadline($timeout))
                : $this->balance($request, $this->client->call($for, $timeout, $idempotent, $ask, $request));
        } finally {
            $request->release();
        }
    }

    private function balance(UpstreamRequest $request, Call $call): Response
    {
        $attempt = $call->first();
        while (true) {
            try {
                $response = $this->send($request, $attempt, $call->deadline);
                $attempt->finish();
                $next = in_array($response->status, Call::RETRIED_STATUSES, true) ? $call->retry() : null;
                if ($next === null) {
                    return $response;
                }
            } catch (ConnectionFailed $error) {
                $next = $error->getCode() !== 0 ? $call->retry() : null;
                if ($next === null) {
                    throw $error;
                }
            } finally { // an exception of a signal handler may hold the attempt in its trace
                $attempt->finish();
            }
            $attempt = $next;
        }
    }

    /** A URL without the password that it may have, for messages. */
    private static function shown(string $url): string
    {
        return addcslashes((string) preg_replace('~^(\w+://)[^/?#]*@~', '$1', $url), "\0..\37\177");
    }

    /** @throws ConnectionFailed whose code is the error of curl if the request may be sent elsewhere, else 0 */
    private function send(UpstreamRequest $request, ?Attempt $attempt, Deadline $deadline): Response
    {
        $handle = $request->to($attempt, $deadline);
        $error = $this->run($handle, $deadline);
        if ($error === 0) {
            $attempt?->connected((float) (curl_getinfo($handle, CURLINFO_APPCONNECT_TIME) ?: curl_getinfo($handle, CURLINFO_CONNECT_TIME)));
            return $request->response();
        }
        $message = curl_error($handle) ?: (string) curl_strerror($error);
        $where = "{$request->method} " . self::shown($request->url) . ($attempt === null ? '' : " at $attempt->address");
        $unsent = Errors::isUnsent($error, (int) curl_getinfo($handle, CURLINFO_REQUEST_SIZE));
        if ($error === CURLE_OPERATION_TIMEDOUT && $deadline->atMost(1.0) < 0.01) {
            $timedOut = new TimedOut("$where: $message");
            $unsent ? $attempt?->unsent(true, $timedOut) : $attempt?->failed($timedOut);
            throw $timedOut;
        }
        if (Errors::isLocal($error)) {
            $attempt?->finish();
            throw new ConnectionFailed("$where: $message");
        }
        $elsewhere = !$request->answered() && (Errors::isConnection($error) || $error === CURLE_OPERATION_TIMEDOUT);
        $failed = new ConnectionFailed("$where: $message", $elsewhere ? $error : 0);
        $unsent ? $attempt?->unsent($error === CURLE_OPERATION_TIMEDOUT, $failed) : $attempt?->failed($failed);
        throw $failed;
    }

    /** Runs a transfer to its end, with the background meanwhile, and returns the error of curl. */
    private function run(CurlHandle $handle, Deadline $deadline): int
    {
        $transfers = $this->client->api->transfers;
        $error = null;
        $transfers->start($handle, static function (int $result) use (&$error): void {
            $error = $result;
        });
        try {
            $transfers->advance();
            while ($error === null) {
                $transfers->wait($deadline->atMost(0.1));
                $this->client->advance();
            }
        } finally { // a handler of a signal may throw
            $transfers->stop($handle);
        }
        return $error;
    }
}
