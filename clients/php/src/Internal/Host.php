<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Ask;
use Psr\Http\Message\RequestInterface;

/** What requests to a host are for. */
final class Host
{
    /** Begins the names that are targets, whose routes choose the cluster. */
    private const TARGET = 'xds:///';

    /** The length of a hash key. What comes after it does not count. */
    private const HASH_MAX = 1024;

    /** Whether it is a cluster whose requests ask nothing. */
    public readonly bool $plain;

    /**
     * @param string $name a cluster, or a target with its prefix
     * @param list<string> $headers those that the routes of a target match
     * @param string $hash header:NAME or cookie:NAME
     */
    public function __construct(public readonly string $name, private readonly array $headers = [], private readonly string $hash = '')
    {
        $this->plain = $hash === '' && !str_starts_with($name, self::TARGET);
    }

    /**
     * @param mixed $setting of the setting hosts: the name of a cluster, or fields
     * @throws \ValueError if the setting is not valid
     */
    public static function of(string $host, mixed $setting): self
    {
        $fields = is_string($setting) ? ['cluster' => $setting] : $setting;
        $fail = static fn (string $why): \ValueError => new \ValueError("hosts: $host: $why");
        if (!is_array($fields)) {
            throw $fail('it is neither a cluster nor an array');
        }
        $unknown = array_diff_key($fields, ['cluster' => 0, 'target' => 0, 'headers' => 0, 'hash' => 0]);
        ['cluster' => $cluster, 'target' => $target, 'headers' => $headers, 'hash' => $hash]
            = $fields + ['cluster' => '', 'target' => '', 'headers' => [], 'hash' => ''];
        if ($unknown !== []) {
            throw $fail('unknown field ' . array_key_first($unknown));
        }
        if ($cluster !== '' && $target !== '') {
            throw $fail('set either cluster or target, not both');
        }
        if (!is_string($cluster) || !is_string($target) || !is_array($headers) || array_filter($headers, is_string(...)) !== $headers) {
            throw $fail('cluster and target are names, and headers is a list of names');
        }
        if (!is_string($hash) || ($hash !== '' && preg_match('/^(header|cookie):./', $hash) !== 1)) {
            throw $fail('hash is not header:NAME or cookie:NAME');
        }
        $name = match (true) {
            $target !== '' => self::TARGET . (self::target($target) ?? $target),
            $cluster !== '' => $cluster,
            default => self::suffixed($host) ?? throw $fail('set cluster or target'),
        };
        return new self($name, array_values($headers), $hash);
    }

    /** The cluster that a host CLUSTER.lbd names; null for others. */
    public static function suffixed(string $host): ?string
    {
        return strlen($host) > 4 && str_ends_with($host, '.lbd') ? substr($host, 0, -4) : null;
    }

    /** The target that a name is; null if it is a cluster. */
    public static function target(string $name): ?string
    {
        return str_starts_with($name, self::TARGET) ? substr($name, strlen(self::TARGET)) : null;
    }

    /** The cluster, or the target, as a parameter of a pick. */
    public static function parameter(string $name): string
    {
        $target = self::target($name);
        return $target === null ? 'cluster=' . rawurlencode($name) : 'target=' . rawurlencode($target);
    }

    /** What lbd has to know of a request beside its cluster, as a part of a URL. */
    public function query(?Ask $ask, RequestInterface|UpstreamRequest|null $request): string
    {
        $hash = (string) $ask?->hash;
        if ($hash === '' && $this->hash !== '') {
            [$kind, $name] = explode(':', $this->hash, 2);
            $hash = $kind === 'header' ? self::header($request, $name)[0] ?? '' : self::cookie($request, $name);
        }
        $query = $hash === '' ? '' : '&hash=' . rawurlencode(substr($hash, 0, self::HASH_MAX));
        if (self::target($this->name) === null) {
            return $query;
        }
        $path = $ask?->path ?: match (true) {
            $request instanceof RequestInterface => $request->getUri()->getPath(),
            default => (string) parse_url((string) $request?->url, PHP_URL_PATH),
        };
        $query .= '&path=' . rawurlencode($path ?: '/');
        $headers = $ask?->headers ?? array_combine($this->headers, array_map(static fn (string $name): array => self::header($request, $name), $this->headers));
        foreach ($headers as $name => $values) {
            foreach ((array) $values as $value) {
                $query .= '&header.' . rawurlencode((string) $name) . '=' . rawurlencode($value);
            }
        }
        return $query;
    }

    /** @return list<string> */
    private static function header(RequestInterface|UpstreamRequest|null $request, string $name): array
    {
        if ($request instanceof RequestInterface) {
            return array_values($request->getHeader($name));
        }
        $headers = array_change_key_case($request->headers ?? []);
        return array_values((array) ($headers[strtolower($name)] ?? []));
    }

    private static function cookie(RequestInterface|UpstreamRequest|null $request, string $name): string
    {
        foreach (explode(';', implode(';', self::header($request, 'Cookie'))) as $pair) {
            [$key, $value] = explode('=', trim($pair), 2) + ['', ''];
            if ($key === $name) {
                return trim($value, '"');
            }
        }
        return '';
    }
}
