<?php

declare(strict_types=1);

namespace Lbd\Tests;

use GuzzleHttp\Exception\GuzzleException;
use Lbd\Ask;
use Lbd\Exception\Failure;
use Lbd\Exception\Unavailable;
use Lbd\State;
use Lbd\Tried;
use OpenTelemetry\API\Trace\SpanKind;
use OpenTelemetry\API\Trace\StatusCode;
use OpenTelemetry\SDK\Resource\ResourceInfoFactory;
use OpenTelemetry\SDK\Trace\SpanExporter\InMemoryExporter;
use OpenTelemetry\SDK\Trace\SpanProcessor\SimpleSpanProcessor;
use OpenTelemetry\SDK\Trace\TracerProvider;

/** What a program sees of the client. */
final class HooksTest extends RequestTestCase
{
    /** @dataProvider modes */
    public function testTellsOfEachTry(string $library, string $mode): void
    {
        $bad = new Upstream('503');
        $refuses = self::refuses();
        self::$daemon->push("tries-$library-$mode", [$bad->address, $refuses]);
        $tried = [];
        $client = $this->client(['mode' => $mode, 'onAttempt' => static function (Tried $try) use (&$tried): void {
            $tried[] = $try;
            throw new \RuntimeException('a hook that fails');
        }]);
        $url = "http://tries-$library-$mode.lbd/items?key=secret";
        try {
            self::assertSame(503, self::sender($library, $client)('GET', $url)[0]);
        } catch (Failure | GuzzleException) { // the last try was not sent
        }
        self::assertSame(range(1, count($tried)), array_map(static fn (Tried $try): int => $try->choice->attempt, $tried));
        foreach ($tried as $try) {
            $expected = $try->choice->address === $refuses ? ['unreachable', null, true] : ['error', 503, false];
            self::assertSame($expected, [$try->outcome, $try->status, $try->error instanceof \Throwable]);
            self::assertSame(['GET', $url, substr($url, 7, -21)], [$try->method, $try->url, $try->choice->cluster]);
            self::assertGreaterThan(0.0, $try->duration);
        }
        self::assertContains($bad->address, array_map(static fn (Tried $try): string => $try->choice->address, $tried));
    }

    public function testAHookMaySendRequests(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('nested', [$upstream->address]);
        $nested = [];
        $client = $this->client(['onAttempt' => static function (Tried $try) use (&$client, &$nested): void {
            if ($nested === []) {
                $nested[] = 0;
                $nested[] = $client->request('GET', 'http://nested.lbd/')->status;
            }
        }]);
        self::assertSame(200, $client->request('GET', 'http://nested.lbd/')->status);
        self::assertSame([0, 200], $nested);
    }

    public function testLogsWithoutSecrets(): void
    {
        $upstream = new Upstream();
        self::$daemon->push('logs', [$upstream->address]);
        $logger = new Recorder();
        $states = [];
        $settings = ['maxAge' => 0.1, 'staleFor' => 0.3, 'logger' => $logger, 'onState' => static function (State $state) use (&$states): void {
            $states[] = $state;
            throw new \RuntimeException('a hook that fails');
        }];
        $client = $this->client($settings + ['token' => 'hidden']);
        $send = static fn () => $client->request('GET', 'http://logs.lbd/?a=hidden', 'hidden', ['X' => 'hidden'], ask: new Ask('hidden'));
        $send();
        self::$daemon->stop();
        try {
            Process::until(static function () use ($send): bool {
                try {
                    $send();
                    return false;
                } catch (Unavailable $error) {
                    self::assertStringContainsString(self::$daemon->lbd . ' (the setting lbd): ', $error->getMessage());
                    return true;
                }
            }, 'the batch is stale');
        } finally {
            self::$daemon->start();
        }
        self::$daemon->push('logs', [$upstream->address]);
        Process::until(static function () use ($client, &$states): bool {
            $client->tick(0.01);
            return count($states) === 3;
        }, 'lbd answers again');
        self::assertSame([State::Unreachable, State::Stale, State::Recovered], $states);
        $names = array_column($logger->calls, 0);
        self::assertSame(['debug', 'error', 'info', 'warning'], array_values(array_intersect(['debug', 'error', 'info', 'warning'], $names)));
        self::assertSame([2, 3, 1], [count(array_keys($names, 'warning', true)), count(array_keys($names, 'error', true)), count(array_keys($names, 'info', true))]);
        foreach ($logger->calls as [$name, $arguments]) {
            self::assertStringNotContainsString('hidden', (string) json_encode($name === 'error' ? $arguments[0] : $arguments));
        }
        $warning = $logger->calls[(int) array_search('warning', $names, true)][1][1];
        self::assertSame('unreachable', $warning['state']);
        self::assertStringContainsString(self::$daemon->lbd, $warning['error']);
    }

    public function testNamesTheAddressOfLbdAndHowItWasFound(): void
    {
        $message = function (?string $lbd): string {
            try {
                $this->client(['lbd' => $lbd])->request('GET', 'http://orders.lbd/', timeout: 1.0);
            } catch (Unavailable $error) {
                return $error->getMessage();
            }
            return '';
        };
        $begin = 'cluster orders: lbd is unreachable: GET /v1/pick at ';
        self::assertSame("{$begin}unix:/none/lbd.sock (the setting lbd): connect: No such file or directory", $message('unix:/none/lbd.sock'));
        putenv('LBD=http://127.0.0.1:1');
        try {
            self::assertSame("{$begin}http://127.0.0.1:1 (environment LBD): connect: Connection refused", $message(null));
        } finally {
            putenv('LBD');
        }
        $found = (fn (): string => $this->found)->call((new \Lbd\Client())->api);
        self::assertSame('default; set LBD', $found);
    }

    /** With an object in place of OpenTelemetry, which remembers what the hook calls. */
    public function testTheExampleMakesSpans(): void
    {
        interface_exists(SpanKind::class) || require_once __DIR__ . '/opentelemetry.php';
        $upstreams = [new Upstream('503'), new Upstream('503')];
        self::$daemon->push('spans', Upstream::addresses(...$upstreams));
        $provider = new Recorder();
        $client = $this->client(['onAttempt' => (require __DIR__ . '/../examples/opentelemetry.php')($provider)]);
        $client->request('GET', 'http://spans.lbd/items?key=secret');
        $calls = static fn (string $name): array => array_column(array_values(array_filter($provider->calls, static fn (array $call): bool => $call[0] === $name)), 1);
        self::assertSame([['GET'], ['GET']], $calls('spanBuilder'));
        self::assertSame([[1], [1]], $calls('setSpanKind'));
        self::assertSame([['Error'], ['Error']], $calls('setStatus'));
        foreach ($calls('setAttributes') as $i => [$attributes]) {
            self::assertContains($attributes['network.peer.address'] . ':' . $attributes['network.peer.port'], Upstream::addresses(...$upstreams));
            unset($attributes['network.peer.address'], $attributes['network.peer.port']);
            self::assertSame([
                'http.request.method' => 'GET',
                'server.address' => 'spans.lbd',
                'server.port' => 80,
                'http.response.status_code' => 503,
                'error.type' => '503',
            ] + ($i === 0 ? [] : ['http.request.resend_count' => 1]) + ['lbd.cluster' => 'spans'], $attributes);
            self::assertLessThan($calls('end')[$i][0], $calls('setStartTimestamp')[$i][0]);
        }
        self::assertStringNotContainsString('secret', (string) json_encode($provider->calls));
    }

    /** With the package open-telemetry/sdk, if the autoloader finds it, and its exporter in memory. */
    public function testTheExampleMakesSpansOfTheSdk(): void
    {
        if (!class_exists(TracerProvider::class)) {
            self::markTestSkipped('the package open-telemetry/sdk is not installed');
        }
        $upstreams = [new Upstream('503'), new Upstream('503')];
        self::$daemon->push('sdk', Upstream::addresses(...$upstreams));
        $processor = new SimpleSpanProcessor($exporter = new InMemoryExporter());
        $provider = new TracerProvider($processor, resource: ResourceInfoFactory::emptyResource());
        $hook = (require __DIR__ . '/../examples/opentelemetry.php')($provider);
        $client = $this->client(['onAttempt' => $hook]);
        $parent = $provider->getTracer('test')->spanBuilder('parent')->startSpan();
        $scope = $parent->activate();
        $client->request('GET', 'http://sdk.lbd/items?key=secret');
        $scope->detach();
        $peers = [];
        foreach ($exporter->getSpans() as $i => $span) {
            $attributes = $span->getAttributes()->toArray();
            $peers[] = $attributes['network.peer.address'] . ':' . $attributes['network.peer.port'];
            unset($attributes['network.peer.address'], $attributes['network.peer.port']);
            self::assertSame([
                'http.request.method' => 'GET',
                'server.address' => 'sdk.lbd',
                'server.port' => 80,
                'http.response.status_code' => 503,
                'error.type' => '503',
            ] + ($i === 0 ? [] : ['http.request.resend_count' => 1]) + ['lbd.cluster' => 'sdk'], $attributes);
            self::assertSame(
                ['GET', SpanKind::KIND_CLIENT, $parent->getContext()->getSpanId(), StatusCode::STATUS_ERROR, true],
                [$span->getName(), $span->getKind(), $span->getParentSpanId(), $span->getStatus()->getCode(), $span->hasEnded()],
            );
            self::assertLessThan($span->getEndEpochNanos(), $span->getStartEpochNanos());
        }
        self::assertEqualsCanonicalizing(Upstream::addresses(...$upstreams), $peers);
    }
}
