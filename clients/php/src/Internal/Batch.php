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
    /** Picks to ask for: those for TIME seconds. The first batch has FIRST. */
    private const MIN = 20;
    public const FIRST = 100;
    public const MAX = 1000;
    private const TIME = 2.0;

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

    /** The picks to ask for, after so many requests with this batch. */
    public function next(int $requests): int
    {
        return (int) min(max(self::MIN, $requests * self::TIME / max(0.1, Deadline::now() - $this->made)), self::MAX);
    }

    /** The call for a batch of n picks, for which lbd waits for an endpoint for at most these seconds. */
    public static function path(string $cluster, float $wait, int $n): string
    {
        return '/v1/pick?cluster=' . rawurlencode($cluster) . "&n=$n&reports=true&wait=" . Api::duration($wait);
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
            for ($i = min(self::MAX, is_int($count) ? $count : 0); $i > 0; $i--) {
                $elements[] = $element;
            }
        }
        $element = self::refusal('circuit_broken', "cluster $cluster: the circuit breaker is full", 'circuit_broken');
        for ($i = min(self::MAX, $full); $i > 0; $i--) {
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
     * The address of the next element that is not avoided: of the others, each keeps its share.
     *
     * @param \Closure(): int $turn the next turn
     * @throws LbdException for a refusal
     */
    public function take(\Closure $turn, Asides $asides, string $cluster): string
    {
        $n = count($this->elements);
        for ($left = 2 * $n; ; $left--) { // other processes take some
            $element = $this->elements[$turn() % $n];
            if ($left === 0 || $element[0] === '!' || !$asides->avoids($element)) {
                return self::address($element, $cluster);
            }
        }
    }

    /**
     * An address that accept permits, drawn so that each keeps its share; null if there is none.
     *
     * @param \Closure(string): bool $accept
     */
    public function draw(\Closure $accept): ?string
    {
        $n = count($this->elements);
        $first = mt_rand(0, $n - 1);
        for ($i = -8; $i < $n; $i++) {
            $element = $this->elements[$i < 0 ? mt_rand(0, $n - 1) : ($first + $i) % $n];
            if ($element[0] !== '!' && $accept($element)) {
                return $element;
            }
        }
        return null;
    }

    /** @return list<string> each address once */
    public function addresses(): array
    {
        return array_values(array_filter(array_unique($this->elements), static fn (string $element): bool => $element[0] !== '!'));
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
