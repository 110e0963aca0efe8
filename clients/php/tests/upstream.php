<?php

declare(strict_types=1);

// An HTTP server on loopback: php upstream.php BEHAVIOR [CERTIFICATE], the second for https. It prints its address, and
// ends with its standard input. BEHAVIOR is a status, reset (ends connections when a request has arrived), hang, drip (a
// body that never ends), or failing (1 % of the answers are 503). It can also be that of an lbd: flapping (each answer is
// of another generation), busy (rejects each call), excluding (has one endpoint, 127.0.0.1:1), or quota (permits 100
// picks).
// GET /requests answers with the requests so far, as JSON; a path /BEHAVIOR overrides it.

$behavior = $argv[1];
$context = stream_context_create(['ssl' => ['local_cert' => $argv[2] ?? '']]);
$server = stream_socket_server((isset($argv[2]) ? 'tls' : 'tcp') . '://127.0.0.1:0', context: $context) ?: exit(1);
$address = stream_socket_get_name($server, false);
fwrite(STDOUT, "$address\n");
$connections = $buffers = $dripping = $requests = [];

$answer = static function ($connection, string $method, string $path, string $body) use (&$behavior, $address, &$requests, &$dripping): bool {
    $status = preg_match('~^/(\d{3}|reset|hang|drip)\b~', $path, $match) === 1 ? $match[1] : $behavior;
    if ($status === 'failing') {
        $status = mt_rand(1, 100) === 1 ? '503' : '200';
    }
    if ($path === '/requests') {
        [$status, $address] = ['200', json_encode($requests)];
    } elseif ($status === 'flapping') {
        [$status, $address] = ['200', json_encode(['generation' => count($requests), 'picks' => [['address' => $address]]])];
    } elseif ($status === 'excluding' || $status === 'quota') {
        $refused = str_contains($path, 'exclude=') ? 'all_excluded' : (preg_match('/&n=\d{3}/', $path) === 1 && !str_contains($path, '&n=100&') ? 'invalid_argument' : null);
        $pick = ['address' => '127.0.0.1:1'];
        [$status, $address] = [$refused === null ? '200' : '503', json_encode(['code' => $refused, 'generation' => 1, 'picks' => [$pick]] + $pick)];
    } elseif ($status === 'busy') {
        [$status, $address] = ['503', '{"code":"internal"}'];
    }
    if ($status === 'reset') {
        return false;
    }
    if ($status === 'drip') {
        fwrite($connection, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        $dripping[] = $connection;
    } elseif ($status !== 'hang') {
        fwrite($connection, "HTTP/1.1 $status X\r\nX-Path: $path\r\nContent-Length: " . strlen($address) . "\r\n\r\n" . ($method === 'HEAD' ? '' : $address));
    }
    return $path !== '/requests';
};

while (true) {
    $ready = [STDIN, $server, ...$connections];
    $none = null;
    if (!stream_select($ready, $none, $none, 0, 20_000)) {
        foreach ($dripping as $connection) {
            @fwrite($connection, '.');
        }
        continue;
    }
    foreach ($ready as $stream) {
        if ($stream === STDIN) {
            exit;
        }
        if ($stream === $server) {
            $connection = @stream_socket_accept($server);
            if ($connection === false) {
                continue; // a client that does not trust the certificate
            }
            $connections[(int) $connection] = $connection;
            $buffers[(int) $connection] = '';
            continue;
        }
        $id = (int) $stream;
        $part = fread($stream, 65536);
        $buffers[$id] .= $part;
        $open = $part !== '' && $part !== false;
        while ($open && preg_match('~^(\S+) (\S+) HTTP/1.1\r\n(.*?)\r\n\r\n~s', $buffers[$id], $match) === 1) {
            $length = preg_match('/^content-length: *(\d+)/im', $match[3], $found) === 1 ? (int) $found[1] : 0;
            if (strlen($buffers[$id]) < strlen($match[0]) + $length) {
                break;
            }
            $body = substr($buffers[$id], strlen($match[0]), $length);
            $buffers[$id] = substr($buffers[$id], strlen($match[0]) + $length);
            preg_match('/^host: *(\S+)/im', $match[3], $host);
            if ($match[2] !== '/requests') {
                $requests[] = ['method' => $match[1], 'path' => $match[2], 'host' => $host[1] ?? '', 'body' => $body, 'connection' => $id];
            }
            $open = $answer($stream, $match[1], $match[2], $body) && preg_match('/^connection: *close/im', $match[3]) !== 1;
        }
        if (!$open) {
            fclose($stream);
            unset($connections[$id], $buffers[$id]);
        }
    }
}
