<?php

declare(strict_types=1);

namespace Lbd;

use Lbd\Internal\FinishingStream;
use Lbd\Internal\HttpFailure;
use Psr\Http\Client\ClientExceptionInterface;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\StreamInterface;

/**
 * Sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and the others as the inner client does.
 *
 * The certificate of an upstream with https has to be for its address.
 */
final class Psr18Client implements ClientInterface
{
    /** @var \Closure(float, float): ClientInterface */
    private readonly \Closure $inner;

    private ?Ask $ask = null;

    /**
     * @param ClientInterface|\Closure(float, float): ClientInterface $inner the client that sends the requests, or a
     *     function that returns one whose requests end after that many seconds, and their connects after the second
     *     number: PSR-18 has no timeouts
     * @param ?float $timeout deadline in seconds, after which there are no more tries. Default: that of the Client
     */
    public function __construct(private readonly Client $client, ClientInterface|\Closure $inner, private readonly ?float $timeout = null)
    {
        $this->inner = $inner instanceof \Closure ? $inner : static fn (float $seconds, float $connect): ClientInterface => $inner;
    }

    /** A client whose requests ask something of lbd. $ask gets what lbd has chosen. */
    public function withAsk(Ask $ask): self
    {
        $client = clone $this;
        $client->ask = $ask;
        return $client;
    }

    public function sendRequest(RequestInterface $request): ResponseInterface
    {
        $host = $this->client->host($request->getUri()->getHost());
        if ($host === null) {
            return ($this->inner)($this->timeout ?? $this->client->timeout, $this->client->connectTimeout)->sendRequest($request);
        }
        $idempotent = in_array(strtoupper($request->getMethod()), Call::IDEMPOTENT, true) || $request->hasHeader('Idempotency-Key');
        $body = $request->getBody();
        $begin = self::position($body);
        $repeatable = $idempotent && ($body->isSeekable() || $body->getSize() === 0);
        $call = $this->client->call($host, $this->timeout ?? $this->client->timeout, $repeatable, $this->ask, $request);
        $attempt = $call->first();
        while (true) {
            try {
                $left = max(0.001, (float) $call->deadline->left());
                $inner = ($this->inner)($left, min($left, $attempt->connectTimeout));
                $response = self::send($inner, self::at($attempt->address, $request));
            } catch (ClientExceptionInterface $error) {
                $next = HttpFailure::end($attempt, $error) ? $call->retry(self::isUnread($body, $begin)) : null;
                if ($next === null) {
                    throw $error;
                }
                $attempt = $next;
                continue;
            }
            $attempt->answered($response->getStatusCode());
            $next = in_array($response->getStatusCode(), Call::RETRIED_STATUSES, true) ? $call->retry() : null;
            if ($next === null) {
                return $response->withBody(FinishingStream::of($response->getBody(), $attempt));
            }
            $response->getBody()->close();
            $attempt->finish();
            $attempt = $next;
        }
    }

    /** Guzzle, which has options for one request, uses no proxy: not even that of the environment. */
    private static function send(ClientInterface $inner, RequestInterface $request): ResponseInterface
    {
        return $inner instanceof \GuzzleHttp\ClientInterface
            ? $inner->send($request, ['allow_redirects' => false, 'http_errors' => false, 'proxy' => ''])
            : $inner->sendRequest($request);
    }

    /** @internal how much of a body was read; null if that is unknown */
    public static function position(StreamInterface $body): ?int
    {
        try {
            return $body->tell();
        } catch (\RuntimeException) {
            return null;
        }
    }

    /** @internal whether nothing of a body was read since a position, or it can be read again */
    public static function isUnread(StreamInterface $body, ?int $begin): bool
    {
        return $body->isSeekable() || $body->getSize() === 0 || ($begin !== null && self::position($body) === $begin);
    }

    /** The request to an address, with the Host of its URL. */
    public static function at(string $address, RequestInterface $request): RequestInterface
    {
        $body = $request->getBody();
        if ($body->isSeekable()) {
            $body->rewind();
        }
        $colon = (int) strrpos($address, ':');
        $uri = $request->getUri();
        if (!$request->hasHeader('Host')) {
            $request = $request->withHeader('Host', $uri->getHost() . ($uri->getPort() === null ? '' : ":{$uri->getPort()}"));
        }
        return $request->withUri($uri->withHost(substr($address, 0, $colon))->withPort((int) substr($address, $colon + 1)), true);
    }
}
