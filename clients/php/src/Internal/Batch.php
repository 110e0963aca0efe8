<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;

/**
 * The picks of one answer of lbd, shuffled. It never changes.
 *
 * An element is an address, or begins with "!" and is a refusal: it is a line of text, so that a batch can be shared as
 * one string.
 */
final class Batch
{
    /** Picks to ask for. */
    public const SIZE = 100;

    private const REFUSALS = [
        'dropped' => Dropped::class,
        'circuit_broken' => CircuitBroken::class,
    ];

    /**
     * @param non-empty-list<string> $elements
     * @param float $made the time of the answer
     * @param ?int $generation that of the cluster; null if lbd refused all picks, because then it does not say
     */
    private function __construct(public readonly array $elements, public readonly float $made, public readonly ?int $generation)
    {
    }

    /** The call for a batch, for which lbd waits for an endpoint for at most these seconds. */
    public static function path(string $cluster, float $wait): string
    {
        return '/v1/pick?cluster=' . rawurlencode($cluster) . '&n=' . self::SIZE . '&reports=true&wait=' . Api::duration($wait);
    }

    /** Whether a pick of lbd has this as its address. */
    public static function isAddress(mixed $address): bool
    {
        return is_string($address) && preg_match('~^[^\s!/]+:\d{1,5}$~D', $address) === 1;
    }

    /**
     * The batch in the answer to path.
     *
     * @param array<mixed> $answer
     * @throws Unreachable if the answer has none
     */
    public static function ofAnswer(string $cluster, array $answer): self
    {
        $elements = [];
        $generation = $answer['generation'] ?? null;
        $picks = $answer['picks'] ?? null;
        $dropped = $answer['dropped'] ?? [];
        $full = $answer['circuit_broken'] ?? 0;
        if (!is_array($picks) || !is_array($dropped) || !is_int($full) || !is_int($generation)) {
            throw new Unreachable('the answer is not a batch');
        }
        foreach ($picks as $pick) {
            $address = is_array($pick) ? $pick['address'] ?? null : null;
            if (!self::isAddress($address)) {
                throw new Unreachable('the answer has a pick without an address');
            }
            $elements[] = $address;
        }
        foreach ($dropped as $category => $count) {
            $element = self::refusal('dropped', "cluster $cluster: drop category $category dropped the request", 'dropped');
            for ($i = min(self::SIZE, is_int($count) ? $count : 0); $i > 0; $i--) {
                $elements[] = $element;
            }
        }
        $element = self::refusal('circuit_broken', "cluster $cluster: the circuit breaker is full", 'circuit_broken');
        for ($i = min(self::SIZE, $full); $i > 0; $i--) {
            $elements[] = $element;
        }
        if ($elements === []) {
            throw new Unreachable('the answer has a batch without picks');
        }
        shuffle($elements);
        return new self($elements, Deadline::now(), $generation);
    }

    /** A batch of nothing but a refusal: lbd refused each pick. */
    public static function ofRefusal(Dropped|CircuitBroken $error): self
    {
        $kind = $error instanceof Dropped ? 'dropped' : 'circuit_broken';
        return new self([self::refusal($kind, $error->getMessage(), $error->reason)], Deadline::now(), null);
    }

    private static function refusal(string $kind, string $message, string $reason): string
    {
        return '!' . json_encode([$kind, $message, $reason], JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
    }

    /**
     * The address of an element.
     *
     * @throws LbdException for a refusal
     */
    public static function address(string $element, string $cluster): string
    {
        if ($element[0] !== '!') {
            return $element;
        }
        [$kind, $message, $reason] = json_decode(substr($element, 1), true, 2, JSON_THROW_ON_ERROR);
        $class = self::REFUSALS[$kind];
        throw new $class($message, $cluster, $reason);
    }

    /**
     * The first address from a turn on that is not in tried, or null if there is none.
     *
     * @param list<string> $tried
     */
    public function other(int $turn, array $tried): ?string
    {
        $n = count($this->elements);
        for ($i = 0; $i < $n; $i++) {
            $element = $this->elements[($turn + $i) % $n];
            if ($element[0] !== '!' && !in_array($element, $tried, true)) {
                return $element;
            }
        }
        return null;
    }

    public function encode(): string
    {
        return sprintf("%.6F %s\n", $this->made, $this->generation ?? '-') . implode("\n", $this->elements);
    }

    /** The batch in a string, or null if it has none. */
    public static function decode(string $text): ?self
    {
        $elements = explode("\n", $text);
        [$made, $generation] = explode(' ', array_shift($elements)) + ['', ''];
        if ($elements === [] || in_array('', $elements, true) || !is_numeric($made)) {
            return null;
        }
        return new self($elements, (float) $made, $generation === '-' ? null : (int) $generation);
    }
}
