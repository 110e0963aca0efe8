<?php

declare(strict_types=1);

namespace Lbd;

use GuzzleHttp\Promise\Create;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\PrepareBodyMiddleware;
use GuzzleHttp\RedirectMiddleware;
use GuzzleHttp\RequestOptions;
use GuzzleHttp\RetryMiddleware;
use GuzzleHttp\TransferStats;
use Lbd\Exception\LbdException;
use Lbd\Internal\FinishingStream;
use Lbd\Internal\HttpFailure;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;

/**
 * A middleware of Guzzle that sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and does not touch
 * the others. Push it last: a LogicException says that redirects or retries are within it.
 *
 * The deadline of a request is the option timeout, else the timeout of the Client. The option idempotent permits
 * retries of a POST or PATCH, or forbids those of other methods. The option lbd is an Ask.
 */
final class GuzzleMiddleware
{
    /** Whether a request may be sent again. Default: if its method is idempotent, or it has a header Idempotency-Key. */
    public const IDEMPOTENT = 'idempotent';

    /** An Ask: what the program asks of lbd for the request. It gets what lbd has chosen. */
    public const ASK = 'lbd';

    public function __construct(private readonly Client $client)
    {
    }

    /**
     * @param callable(RequestInterface, array<mixed>): PromiseInterface $handler
     * @return \Closure(RequestInterface, array<mixed>): PromiseInterface
     */
    public function __invoke(callable $handler): \Closure
    {
        self::checkOrder($handler);
        return function (RequestInterface $request, array $options) use ($handler): PromiseInterface {
            $host = $this->client->host($request->getUri()->getHost());
            if ($host === null) {
                return $handler($request, $options);
            }
            $timeout = (float) ($options[RequestOptions::TIMEOUT] ?? 0) ?: $this->client->timeout;
            $idempotent = $options[self::IDEMPOTENT]
                ?? (in_array(strtoupper($request->getMethod()), Call::IDEMPOTENT, true) || $request->hasHeader('Idempotency-Key'));
            $body = $request->getBody();
            $begin = Psr18Client::position($body);
            try {
                $repeatable = $idempotent && ($body->isSeekable() || $body->getSize() === 0);
                $call = $this->client->call($host, $timeout, $repeatable, $options[self::ASK] ?? null, $request);
                return $this->send($handler, $request, self::options($options, (bool) $idempotent), $call, $call->first(), $begin);
            } catch (LbdException $error) {
                return Create::rejectionFor($error);
            }
        };
    }

    /** What sends a request again has to be around this middleware: within it, it would do so at the same endpoint. */
    private static function checkOrder(mixed $handler): void
    {
        while ($handler !== null) {
            if ($handler instanceof RedirectMiddleware || $handler instanceof RetryMiddleware) {
                throw new \LogicException('lbd: push Lbd\GuzzleMiddleware last: it has to be after ' . $handler::class);
            }
            $handler = match (true) {
                $handler instanceof \Closure => (new \ReflectionFunction($handler))->getStaticVariables()['handler'] ?? null,
                $handler instanceof PrepareBodyMiddleware => (fn (): callable => $this->nextHandler)->call($handler),
                default => null,
            };
        }
    }

    /**
     * @param array<mixed> $options
     * @return array<mixed> with what is the same in all tries
     */
    private static function options(array $options, bool $idempotent): array
    {
        $options[RequestOptions::PROXY] = ''; // not even that of the environment
        if (!$idempotent) {
            // curl sends a request again if a connection that was open before ends without an answer.
            $options['curl'] = [CURLOPT_FRESH_CONNECT => true] + ($options['curl'] ?? []);
        }
        return $options;
    }

    /**
     * @param callable(RequestInterface, array<mixed>): PromiseInterface $handler
     * @param array<mixed> $options
     */
    private function send(
        callable $handler,
        RequestInterface $request,
        array $options,
        Call $call,
        Attempt $attempt,
        ?int $begin,
    ): PromiseInterface {
        $left = max(0.001, (float) $call->deadline->left());
        $connect = min($left, $attempt->connectTimeout, (float) ($options[RequestOptions::CONNECT_TIMEOUT] ?? 0) ?: INF);
        $known = \WeakReference::create($attempt); // a handler may keep the options of a request that was given up
        $sent = [
            RequestOptions::TIMEOUT => $left,
            RequestOptions::CONNECT_TIMEOUT => $connect,
            RequestOptions::ON_STATS => static function (TransferStats $stats) use ($known, $options): void {
                if ($stats->hasResponse()) {
                    $known->get()?->connected((float) ($stats->getHandlerStat('appconnect_time') ?: $stats->getHandlerStat('connect_time')));
                }
                isset($options[RequestOptions::ON_STATS]) && $options[RequestOptions::ON_STATS]($stats);
            },
        ] + $options;
        $again = function () use ($handler, $request, $options, $call, $begin): ?PromiseInterface {
            $next = $call->retry(Psr18Client::isUnread($request->getBody(), $begin));
            return $next === null ? null : $this->send($handler, $request, $options, $call, $next, $begin);
        };
        $target = Psr18Client::at($attempt->address, $request);
        if ($request->getUri()->getScheme() === 'https') { // the certificate is that of the host
            $uri = $request->getUri();
            $target = $target->withUri($uri, true);
            $sent['curl'] = [CURLOPT_CONNECT_TO => ["::$attempt->address"]] + ($options['curl'] ?? []);
        }
        return $handler($target, $sent)->then(
            static function (ResponseInterface $response) use ($attempt, $again, $options): ResponseInterface|PromiseInterface {
                $attempt->answered($response->getStatusCode());
                $sink = $options[RequestOptions::SINK] ?? ''; // a file that is open has the body of this response already
                $retried = in_array($response->getStatusCode(), Call::RETRIED_STATUSES, true);
                $next = $retried && is_string($sink) ? $again() : null;
                if ($next === null) {
                    return $response->withBody(FinishingStream::of($response->getBody(), $attempt));
                }
                $response->getBody()->close();
                $attempt->finish();
                return $next;
            },
            static function (mixed $reason) use ($attempt, $again): PromiseInterface {
                $retried = $reason instanceof \Throwable && HttpFailure::end($attempt, $reason);
                $attempt->finish();
                return ($retried ? $again() : null) ?? Create::rejectionFor($reason);
            },
        );
    }
}
