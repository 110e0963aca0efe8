<?php

declare(strict_types=1);

namespace Lbd\Exception;

/** Base of the exceptions of requests that got no endpoint from lbd. */
abstract class LbdException extends \RuntimeException implements Failure
{
    /**
     * @param string $cluster the cluster of the request
     * @param string $reason the code of lbd's answer, such as no_ready_endpoint; '' if lbd did not answer
     * @param float $retryAfter seconds after which lbd expects the next call; 0 if it did not say
     */
    final public function __construct(
        string $message,
        public readonly string $cluster = '',
        public readonly string $reason = '',
        public readonly float $retryAfter = 0.0,
        ?\Throwable $previous = null,
    ) {
        parent::__construct($message, 0, $previous);
    }

    /** A copy with the stack trace of this place. */
    public function again(): static
    {
        return new static($this->getMessage(), $this->cluster, $this->reason, $this->retryAfter, $this);
    }

    /** @internal whether lbd rejects the name of the cluster, or the token: the same call would not help soon */
    public function isFinal(): bool
    {
        return $this instanceof UnknownCluster || $this instanceof PermissionDenied || $this->reason === 'invalid_argument';
    }

    /**
     * The exception for an answer of lbd that rejects.
     *
     * @param array<mixed> $problem the body (RFC 9457), or empty
     */
    public static function ofAnswer(string $cluster, int $status, array $problem, float $retryAfter): self
    {
        $code = is_string($problem['code'] ?? null) ? $problem['code'] : '';
        $detail = $problem['detail'] ?? $problem['title'] ?? null;
        $message = "cluster $cluster: " . (is_string($detail) ? $detail : "status $status");
        $category = $problem['category'] ?? null;
        $message .= $code === '' ? '' : " ($code" . (is_string($category) ? ": $category)" : ')');
        $reason = $code === '' ? (string) $status : $code;
        $kind = self::KINDS[$code] ?? ($status === 401 || $status === 403 ? PermissionDenied::class : Unavailable::class);
        return new $kind($message, $cluster, $reason, $retryAfter);
    }

    private const KINDS = [
        'dropped' => Dropped::class,
        'circuit_broken' => CircuitBroken::class,
        'unknown_cluster' => UnknownCluster::class,
        'unknown_target' => UnknownCluster::class,
        'permission_denied' => PermissionDenied::class,
        'unauthenticated' => PermissionDenied::class,
    ];
}
