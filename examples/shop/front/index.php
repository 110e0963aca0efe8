<?php

declare(strict_types=1);

// The page of the shop. The services catalog and prices are called through lbd.

require __DIR__ . '/autoload.php';

const PRODUCTS = ['tea', 'coffee', 'cup', 'kettle'];

$lbd = new Lbd\Client(timeout: 3.0);

/** What a service answers, or the element error. A page with a gap is better than none. */
function ask(string $url): array
{
    global $lbd;
    try {
        $response = $lbd->request('GET', $url);
        return $response->status === 200
            ? json_decode($response->body, true, flags: JSON_THROW_ON_ERROR)
            : ['error' => "$url: status $response->status"];
    } catch (Lbd\Exception\Failure | JsonException $error) {
        return ['error' => $error->getMessage()];
    }
}

/** The instances that answered, as text; what failed, marked. */
function trace(array $answer): string
{
    return match (true) {
        isset($answer['error']) => '<span class="failed">' . htmlspecialchars($answer['error']) . '</span>',
        isset($answer['stock']) => htmlspecialchars($answer['instance']) . ' → ' . trace($answer['stock']),
        default => htmlspecialchars($answer['instance']),
    };
}

$rows = [];
foreach (PRODUCTS as $product) {
    $rows[$product] = [ask("http://catalog.lbd/products/$product"), ask("http://prices.lbd/prices/$product")];
}
$dashboard = getenv('DASHBOARD') ?: 'http://127.0.0.1:8080';
?>
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Shop</title>
<style>
    body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
    table { border-collapse: collapse; width: 100%; }
    th, td { text-align: left; vertical-align: top; padding: .5rem 1rem .5rem 0; border-top: 1px solid #ccc; }
    small, footer { color: #555; }
    .failed { color: #b00020; }
</style>
<h1>Shop</h1>
<table>
    <tr><th>Product<th>Price<th>In stock<th>Answered by
<?php foreach ($rows as $product => [$text, $price]) { ?>
    <tr>
        <td><b><?= htmlspecialchars($text['name'] ?? $product) ?></b><br><?= htmlspecialchars($text['text'] ?? '') ?>
        <td><?= isset($price['cents']) ? sprintf('€ %.2f', $price['cents'] / 100) : '–' ?><?= $price['sale'] ?? false ? ' Sale!' : '' ?>
        <td><?= match ($pieces = $text['stock']['pieces'] ?? null) { null => 'unknown', 0 => 'sold out', default => $pieces } ?>
        <td><small><?= trace($text) ?><br><?= trace($price) ?></small>
<?php } ?>
</table>
<footer><p>Reload to see other instances. <a href="<?= htmlspecialchars($dashboard) ?>">Dashboard of lbd</a>,
    process <?= getmypid() ?> of PHP, mode <?= $lbd->mode ?>.</footer>
