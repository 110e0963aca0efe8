<?php

declare(strict_types=1);

/** Checks which addresses are set aside: php asides.php SHARED, where SHARED is 1 with APCu. */

use Lbd\Internal\Asides;
use Lbd\Internal\SharedAsides;
use Lbd\Internal\SharedMemory;

require __DIR__ . '/autoload.php';

$asides = $argv[1] === '1' ? new SharedAsides(new SharedMemory('test:'), 'orders') : new Asides();
$check = static function (array $avoided) use ($asides): void {
    foreach ($avoided as $address => $expected) {
        if ($asides->avoids($address) !== $expected) {
            throw new RuntimeException("$address: " . var_export(!$expected, true));
        }
    }
};
$pass = static fn (float $seconds) => (fn () => $this->change(static function (array &$known) use ($seconds): void {
    foreach ($known as &$aside) {
        $aside['until'] -= $seconds;
    }
}))->call($asides);

// A trial is permitted after a time that grows.
$asides->failed('a', false, 2);
$check(['a' => true, 'b' => false]);
foreach ([1, 2, 4, 8, 10, 10] as $pause) {
    $pass(0.8 * $pause - 0.1);
    $check(['a' => true]);
    $pass(0.4 * $pause + 0.1);
    $check(['a' => false]); // the trial
    $check(['a' => true]);
    $asides->failed('a', false, 2);
}
$pass(12);
$check(['a' => false]);
$asides->failed('a', true, 2); // it was connected
$check(['a' => false]);
$asides->answered('a');

// An address is set aside after three ends without an answer.
for ($i = 0; $i < 2; $i++) {
    $asides->failed('a', true, 2);
    $asides->failed('a', true, 2);
    $check(['a' => false]);
    $asides->answered('a');
}
for ($i = 0; $i < 3; $i++) {
    $asides->failed('a', true, 2);
}
$check(['a' => true]);

// No more are set aside than permitted, and they are forgotten.
$asides->failed('b', false, 2);
$asides->failed('c', false, 2);
$check(['a' => true, 'b' => true, 'c' => false]);
assert($asides->avoided() === ['a', 'b']);
$asides->keep(['b', 'c']);
$check(['a' => false, 'b' => true]);
$pass(1.2);
assert($asides->avoided() === []);
$check(['b' => false]);
$check(['b' => true]);
$pass(Asides::FORGET_TIME + Asides::MAX + 1);
$asides->avoided();
assert((fn () => $this->known())->call($asides) === []);
echo "done\n";
