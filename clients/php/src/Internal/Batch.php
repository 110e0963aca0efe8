<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\CircuitBroken;
use Lbd\Exception\Dropped;
use Lbd\Exception\LbdException;

/**
 * The picks of one answer of lbd, shuffled. They never change.
 *
 * An element is an address, or begins with "!" and is a refusal: it is a line of text, so that a batch can be shared as
 * one string.
 */
final class Batch
{
    /** Picks to ask for: those for TIME seconds. The first batch has FIRST. */
    public const MIN = 20;
    public const FIRST = 100;
    public const MAX = 1000;
    private const TIME = 2.0;

    /** Seconds after which a batch of nothing but refusals is replaced, and lbd is asked again for a name that it rejects. */
    public const REFUSED_AGE = 1.0;

    private const AGE_MIN = 0.1;

    private const REFUSALS = [
        'dropped' => Dropped::class,
        'circuit_broken' => CircuitBroken::class,
    ];

    /** The next turn of requests that ask something. */
    private int $turn;

    /**
     * @param non-empty-list<string> $elements
     * @param float $made the time of the answer
     * @param float $until when it is replaced
     * @param ?int $generation that of the cluster; null if lbd refused all picks, because then it does not say
     * @param string $query what the requests ask
     * @param string|array{list<array{string, string, string, string, string, int}>, list<int>} $chosen what lbd says of
     *     addresses, and which of that is for each element; or that as JSON, which few requests need
     */
    private function __construct(
        public readonly array $elements,
        public readonly float $made,
        public readonly float $until,
        public readonly ?int $generation,
        public readonly string $query,
        private string|array $chosen,
    ) {
        $this->turn = mt_rand(0, self::MAX);
    }

    /** The picks to ask for, after so many requests with this batch. */
    public function next(int $requests): int
    {
        return (int) min(max(self::MIN, $requests * self::TIME / max(0.1, Deadline::now() - $this->made)), self::MAX);
    }

    /** The call for a batch of n picks, for which lbd waits for an endpoint for at most these seconds. */
    public static function path(string $name, float $wait, int $n, string $query = ''): string
    {
        return '/v1/pick?' . Host::parameter($name) . "&n=$n&reports=true&wait=" . Api::duration($wait) . $query;
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
    public static function ofAnswer(string $cluster, array $answer, string $query = '', float $maxAge = 10.0): self
    {
        $elements = $chosen = $which = [];
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
            $fields = self::fields($pick, $cluster);
            $which["$address $fields[0]"] ??= array_push($chosen, $fields) - 1;
            $elements[] = [$address, $which["$address $fields[0]"]];
        }
        foreach ($dropped as $category => $count) {
            $element = self::refusal('dropped', "cluster $cluster: drop category $category dropped the request", 'dropped');
            for ($i = min(self::MAX, is_int($count) ? $count : 0); $i > 0; $i--) {
                $elements[] = [$element, -1];
            }
        }
        $element = self::refusal('circuit_broken', "cluster $cluster: the circuit breaker is full", 'circuit_broken');
        for ($i = min(self::MAX, $full); $i > 0; $i--) {
            $elements[] = [$element, -1];
        }
        if ($elements === []) {
            throw new Unreachable('the answer has a batch without picks');
        }
        shuffle($elements);
        // Drawn, because a change makes all clients get a batch at the same time.
        $until = ($now = Deadline::now()) + max(self::AGE_MIN, $maxAge * mt_rand(800, 1000) / 1000);
        return new self(array_column($elements, 0), $now, $until, $generation, $query, [$chosen, array_column($elements, 1)]);
    }

    /**
     * What lbd says of a pick beside its address: cluster, hostname, region, zone, sub-zone and priority.
     *
     * @param array<mixed> $pick
     * @return array{string, string, string, string, string, int}
     */
    public static function fields(array $pick, string $cluster): array
    {
        $text = static fn (mixed $value): string => is_string($value) ? $value : '';
        $locality = $pick['locality'] ?? null;
        $locality = is_array($locality) ? $locality : [];
        return [
            $text($pick['cluster'] ?? null) ?: $cluster,
            $text($pick['hostname'] ?? null),
            $text($locality['region'] ?? null),
            $text($locality['zone'] ?? null),
            $text($locality['sub_zone'] ?? null),
            (int) ($pick['priority'] ?? 0),
        ];
    }

    /**
     * The fields of an element that is an address, or of the first pick.
     *
     * @return ?array{string, string, string, string, string, int}
     */
    public function chosen(?int $element = null): ?array
    {
        if (is_string($this->chosen)) {
            $this->chosen = json_decode($this->chosen, true, 8, JSON_THROW_ON_ERROR);
        }
        [$chosen, $which] = $this->chosen;
        return $chosen[$element === null ? 0 : $which[$element]] ?? null;
    }

    /** A batch of nothing but a refusal: lbd refused each pick. */
    public static function ofRefusal(Dropped|CircuitBroken $error, string $query = '', float $maxAge = 10.0): self
    {
        $kind = $error instanceof Dropped ? 'dropped' : 'circuit_broken';
        $until = ($now = Deadline::now()) + min(self::REFUSED_AGE, $maxAge);
        return new self([self::refusal($kind, $error->getMessage(), $error->reason)], $now, $until, null, $query, [[], [-1]]);
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
    public function address(int $element, string $cluster): string
    {
        $element = $this->elements[$element];
        if ($element[0] !== '!') {
            return $element;
        }
        [$kind, $message, $reason] = json_decode(substr($element, 1), true, 2, JSON_THROW_ON_ERROR);
        $class = self::REFUSALS[$kind];
        throw new $class($message, $cluster, $reason);
    }

    /**
     * The next element that is not avoided: of the others, each keeps its share.
     *
     * @param ?Source $source where the turns are counted; null for those of requests that ask something
     */
    public function take(?Source $source, Asides $asides): int
    {
        $n = count($this->elements);
        for ($left = 2 * $n; ; $left--) { // other processes take some
            $i = ($source === null ? $this->turn++ : $source->turn()) % $n;
            $element = $this->elements[$i];
            if ($left === 0 || $element[0] === '!' || !$asides->avoids($element)) {
                return $i;
            }
        }
    }

    /**
     * An element whose address accept permits, drawn so that each keeps its share; null if there is none.
     *
     * @param \Closure(string): bool $accept
     */
    public function draw(\Closure $accept): ?int
    {
        $n = count($this->elements);
        $first = mt_rand(0, $n - 1);
        for ($i = -8; $i < $n; $i++) {
            $drawn = $i < 0 ? mt_rand(0, $n - 1) : ($first + $i) % $n;
            $element = $this->elements[$drawn];
            if ($element[0] !== '!' && $accept($element)) {
                return $drawn;
            }
        }
        return null;
    }

    /** @return list<string> each address once */
    public function addresses(): array
    {
        return array_values(array_filter(array_unique($this->elements), static fn (string $element): bool => $element[0] !== '!'));
    }

    /** @return array<string, list<string>> each address once, by the cluster that lbd has chosen */
    public function byCluster(): array
    {
        $found = [];
        foreach ($this->elements as $i => $element) {
            $cluster = $this->chosen($i)[0] ?? null;
            if ($cluster !== null) {
                $found[$cluster][$element] = $element;
            }
        }
        return array_map(array_values(...), $found);
    }

    public function encode(): string
    {
        $chosen = is_string($this->chosen) ? $this->chosen : json_encode($this->chosen, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
        return sprintf("%.6F %.6F %s %s\n", $this->made, $this->until, $this->generation ?? '-', $this->query) . "$chosen\n" . implode("\n", $this->elements);
    }

    /** The batch in a string, or null if it has none. */
    public static function decode(string $text): ?self
    {
        [$head, $chosen, $elements] = explode("\n", $text, 3) + ['', '', ''];
        [$made, $until, $generation, $query] = explode(' ', $head) + ['', '', '', ''];
        $elements = explode("\n", $elements);
        if (in_array('', $elements, true) || !is_numeric($made) || !is_numeric($until)) {
            return null;
        }
        return new self($elements, (float) $made, (float) $until, $generation === '-' ? null : (int) $generation, $query, $chosen);
    }
}
