<?php

declare(strict_types=1);

// A hook that makes a span of each try, with the package open-telemetry/api:
//
//     $onAttempt = (require 'opentelemetry.php')(OpenTelemetry\API\Globals::tracerProvider());
//     $client = new Lbd\Client(onAttempt: $onAttempt);
//
// A span is a child of the current one. It has ended by then, so headers of the request do not name it.

use Lbd\Tried;
use OpenTelemetry\API\Trace\SpanKind;
use OpenTelemetry\API\Trace\StatusCode;

/** @param OpenTelemetry\API\Trace\TracerProviderInterface $provider */
return static function (object $provider): Closure {
    $tracer = $provider->getTracer('lbd/client');
    return static function (Tried $tried) use ($tracer): void {
        $end = (int) (microtime(true) * 1e9);
        $url = parse_url($tried->url) ?: [];
        $peer = (int) strrpos($tried->choice->address, ':');
        $failed = $tried->error !== null || ($tried->status ?? 0) >= 400;
        $span = $tracer->spanBuilder($tried->method)
            ->setSpanKind(SpanKind::KIND_CLIENT)
            ->setStartTimestamp($end - (int) ($tried->duration * 1e9))
            ->setAttributes(array_filter([ // no url.full: a query may be a secret
                'http.request.method' => $tried->method,
                'server.address' => $url['host'] ?? null,
                'server.port' => $url['port'] ?? (($url['scheme'] ?? '') === 'https' ? 443 : 80),
                'network.peer.address' => trim(substr($tried->choice->address, 0, $peer), '[]'),
                'network.peer.port' => (int) substr($tried->choice->address, $peer + 1),
                'http.response.status_code' => $tried->status,
                'error.type' => !$failed ? null : (string) (($tried->status ?? 0) >= 400 ? $tried->status : $tried->outcome),
                'http.request.resend_count' => $tried->choice->attempt > 1 ? $tried->choice->attempt - 1 : null,
                'lbd.cluster' => $tried->choice->cluster,
            ], static fn (mixed $value): bool => $value !== null))
            ->startSpan();
        if ($failed) {
            $span->setStatus(StatusCode::STATUS_ERROR);
        }
        $span->end($end);
    };
};
