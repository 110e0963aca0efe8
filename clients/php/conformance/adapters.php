<?php

declare(strict_types=1);

// The HTTP libraries that the runner sends requests with: through a client of lbd, or alone if client is null. Each
// entry returns a function that sends a request, and returns its status and body.

use GuzzleHttp\Client as Guzzle;
use GuzzleHttp\Handler\CurlMultiHandler;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Psr7\Request;
use Lbd\Ask;
use Lbd\Client;
use Lbd\GuzzleMiddleware;
use Lbd\Psr18Client;
use Psr\Http\Message\RequestInterface;

function guzzle(?Client $client, CurlMultiHandler $handler = new CurlMultiHandler(['select_timeout' => 0.1])): Guzzle
{
    $stack = HandlerStack::create($handler);
    if ($client !== null) {
        $stack->push(new GuzzleMiddleware($client));
    }
    return new Guzzle(['handler' => $stack, 'http_errors' => false, 'allow_redirects' => false]);
}

return [
    'core' => static function (?Client $client): Closure {
        $handle = curl_init();
        return static function (string $method, string $url, string $body, array $headers, ?float $timeout, ?Ask $ask) use ($client, $handle): array {
            if ($client !== null) {
                $response = $client->request($method, $url, $body, $headers, $timeout, ask: $ask);
                return [$response->status, $response->body];
            }
            curl_setopt_array($handle, [CURLOPT_URL => $url, CURLOPT_CUSTOMREQUEST => $method, CURLOPT_RETURNTRANSFER => true]);
            $content = curl_exec($handle);
            if ($content === false) {
                throw new RuntimeException(curl_error($handle));
            }
            return [curl_getinfo($handle, CURLINFO_RESPONSE_CODE), $content];
        };
    },
    'psr18' => static function (?Client $client): Closure {
        $stack = HandlerStack::create();
        $stack->push(static fn (callable $next): Closure => static function (RequestInterface $request, array $options) use ($next) {
            $idempotent = $request->getMethod() !== 'POST' || $request->hasHeader('Idempotency-Key');
            return $next($request, $options + ['curl' => [CURLOPT_FRESH_CONNECT => !$idempotent]]); // never send a POST twice
        });
        $inner = static fn (float $seconds, float $connect): Guzzle => new Guzzle([
            'handler' => $stack, 'timeout' => $seconds, 'connect_timeout' => $connect,
        ]);
        return static function (string $method, string $url, string $body, array $headers, ?float $timeout, ?Ask $ask) use ($client, $inner): array {
            $sender = $client === null ? $inner($timeout ?? 30.0, 5.0) : new Psr18Client($client, $inner, $timeout);
            $sender = $sender instanceof Psr18Client && $ask !== null ? $sender->withAsk($ask) : $sender;
            $response = $sender->sendRequest(new Request($method, $url, $headers, $body));
            return [$response->getStatusCode(), (string) $response->getBody()];
        };
    },
    'guzzle' => static function (?Client $client): Closure {
        $guzzle = guzzle($client);
        return static function (string $method, string $url, string $body, array $headers, ?float $timeout, ?Ask $ask) use ($guzzle): array {
            $response = $guzzle->request($method, $url, ['body' => $body, 'headers' => $headers, 'timeout' => $timeout ?? 0, GuzzleMiddleware::ASK => $ask]);
            return [$response->getStatusCode(), (string) $response->getBody()];
        };
    },
];
