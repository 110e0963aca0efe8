<?php

declare(strict_types=1);

namespace Lbd\Tests;

/** A real php-fpm, which runs app.php, and a client of it that speaks FastCGI. */
final class Fpm
{
    private readonly string $directory;
    private readonly Process $process;

    public function __construct(int $workers, string ...$arguments)
    {
        $this->directory = sys_get_temp_dir() . '/lbd-fpm-' . bin2hex(random_bytes(4));
        mkdir($this->directory, 0700);
        $user = posix_getpwuid(posix_geteuid())['name'] ?? '';
        file_put_contents("$this->directory/fpm.conf", <<<CONF
            [global]
            error_log = $this->directory/fpm.log
            [www]
            listen = $this->directory/fpm.sock
            user = $user
            pm = static
            pm.max_children = $workers
            catch_workers_output = yes
            CONF);
        $binary = getenv('PHP_FPM') ?: self::find();
        $this->process = new Process([$binary, '-F', '-R', '-y', "$this->directory/fpm.conf", ...$arguments], "$this->directory/fpm.log");
        Process::until(function (): bool {
            if (!$this->process->running()) {
                throw new \RuntimeException('php-fpm ended: ' . $this->log());
            }
            return @stream_socket_client("unix://$this->directory/fpm.sock") !== false; // the file is there before it listens
        }, 'php-fpm is ready');
    }

    private static function find(): string
    {
        $name = 'php-fpm' . PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION;
        foreach (["/usr/sbin/$name", '/usr/sbin/php-fpm', '/usr/local/sbin/php-fpm'] as $path) {
            if (is_executable($path)) {
                return $path;
            }
        }
        throw new \RuntimeException('php-fpm is not installed, or PHP_FPM is not its path');
    }

    public function log(): string
    {
        return (string) file_get_contents("$this->directory/fpm.log");
    }

    /**
     * Requests app.php, and returns the body of its answer, which is JSON if the script did not fail.
     *
     * @param array<string, mixed> $input what the script gets
     */
    public function request(array $input): mixed
    {
        return $this->receive($this->send($input));
    }

    /**
     * Sends a request without waiting for its answer.
     *
     * @param array<string, mixed> $input
     * @return resource
     */
    public function send(array $input)
    {
        $body = json_encode($input, JSON_THROW_ON_ERROR);
        $parameters = [
            'SCRIPT_FILENAME' => __DIR__ . '/app.php',
            'REQUEST_METHOD' => 'POST',
            'CONTENT_TYPE' => 'application/json',
            'CONTENT_LENGTH' => (string) strlen($body),
        ];
        $pairs = '';
        foreach ($parameters as $name => $value) {
            $pairs .= pack('CN', strlen($name), strlen($value) | 0x80000000) . $name . $value;
        }
        $socket = stream_socket_client("unix://$this->directory/fpm.sock", $code, $message, 10);
        if ($socket === false) {
            throw new \RuntimeException("php-fpm: $message");
        }
        stream_set_timeout($socket, 20);
        fwrite($socket, self::record(1, pack('nCx5', 1, 0)) . self::record(4, $pairs) . self::record(4, '') . self::record(5, $body) . self::record(5, ''));
        return $socket;
    }

    private static function record(int $type, string $content): string
    {
        return pack('CCnnxx', 1, $type, 1, strlen($content)) . $content;
    }

    /** @param resource $socket */
    public function receive($socket): mixed
    {
        $output = '';
        do {
            $header = stream_get_contents($socket, 8);
            if ($header === false || strlen($header) < 8) {
                throw new \RuntimeException('php-fpm ended the connection: ' . $this->log());
            }
            ['type' => $type, 'length' => $length, 'padding' => $padding] = unpack('Cversion/Ctype/nid/nlength/Cpadding', $header);
            $content = (string) stream_get_contents($socket, $length);
            stream_get_contents($socket, $padding);
            $output .= $type === 6 ? $content : '';
        } while ($type !== 3); // FCGI_END_REQUEST
        $body = substr($output, (int) strpos($output, "\r\n\r\n") + 4);
        return json_decode($body, true) ?? $body;
    }

    public function __destruct()
    {
        $this->process->signal(SIGTERM);
        $this->process->wait();
        exec('rm -rf ' . escapeshellarg($this->directory));
    }
}
