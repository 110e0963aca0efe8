<?php

declare(strict_types=1);

// Constants of the package open-telemetry/api, which is not one of Debian's.

namespace OpenTelemetry\API\Trace;

final class SpanKind
{
    public const KIND_CLIENT = 1;
}

final class StatusCode
{
    public const STATUS_ERROR = 'Error';
}
