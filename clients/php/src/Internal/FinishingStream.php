<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Attempt;
use Psr\Http\Message\StreamInterface;

/** The body of a response that still arrives: the request is in flight until it is read to its end, or closed. */
final class FinishingStream implements StreamInterface
{
    private function __construct(private readonly StreamInterface $inner, private readonly Attempt $attempt)
    {
    }

    /** The stream with an attempt; as it is if all of it is there, which finishes the attempt. */
    public static function of(StreamInterface $stream, Attempt $attempt): StreamInterface
    {
        if ($stream->isSeekable() || $stream->eof()) {
            $attempt->finish();
            return $stream;
        }
        return new self($stream, $attempt);
    }

    public function read($length): string
    {
        $part = $this->inner->read($length);
        $this->check();
        return $part;
    }

    public function getContents(): string
    {
        $rest = $this->inner->getContents();
        $this->check();
        return $rest;
    }

    public function eof(): bool
    {
        $this->check();
        return $this->inner->eof();
    }

    private function check(): void
    {
        if ($this->inner->eof()) {
            $this->attempt->finish();
        }
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function close(): void
    {
        $this->inner->close();
        $this->attempt->finish();
    }

    /** @return ?resource */
    public function detach()
    {
        $this->attempt->finish();
        return $this->inner->detach();
    }

    public function __destruct()
    {
        $this->attempt->finish();
    }

    public function getSize(): ?int
    {
        return $this->inner->getSize();
    }

    public function tell(): int
    {
        return $this->inner->tell();
    }

    public function isSeekable(): bool
    {
        return false;
    }

    public function seek($offset, $whence = SEEK_SET): void
    {
        $this->inner->seek($offset, $whence);
    }

    public function rewind(): void
    {
        $this->inner->rewind();
    }

    public function isWritable(): bool
    {
        return false;
    }

    public function write($string): int
    {
        return $this->inner->write($string);
    }

    public function isReadable(): bool
    {
        return $this->inner->isReadable();
    }

    public function getMetadata($key = null): mixed
    {
        return $this->inner->getMetadata($key);
    }
}
