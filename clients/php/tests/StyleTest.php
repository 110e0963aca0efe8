<?php

declare(strict_types=1);

namespace Lbd\Tests;

use PHPUnit\Framework\TestCase;

/** What a static checker would find, as far as reflection sees it: phpstan checks more, where it is installed. */
final class StyleTest extends TestCase
{
    private const LINES = 400;

    /** @return iterable<string, array{string}> */
    public function files(): iterable
    {
        foreach (['src', 'tests', 'conformance', 'examples'] as $folder) {
            $all = new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator(__DIR__ . "/../$folder", \FilesystemIterator::SKIP_DOTS));
            foreach ($all as $file) {
                if ($file->getExtension() === 'php') {
                    yield substr($file->getPathname(), strlen(__DIR__) + 4) => [$file->getPathname()];
                }
            }
        }
    }

    /** @dataProvider files */
    public function testFilesAreStrictAndShort(string $path): void
    {
        $text = (string) file_get_contents($path);
        self::assertStringStartsWith("<?php\n\ndeclare(strict_types=1);\n", $text);
        self::assertLessThanOrEqual(self::LINES, substr_count($text, "\n"));
        self::assertDoesNotMatchRegularExpression('/[ \t]$|\t/m', $text);
    }

    /** @dataProvider files */
    public function testImportsAreUsed(string $path): void
    {
        $text = (string) file_get_contents($path);
        preg_match_all('/^use (?:[\w\\\\]+\\\\)?(\w+)(?: as (\w+))?;$/m', $text, $imports, PREG_SET_ORDER);
        foreach ($imports as $import) {
            $name = $import[2] ?? $import[1];
            self::assertGreaterThan(1, preg_match_all("/\\b$name\\b/", $text), "$name is not used");
        }
        self::assertSame(array_unique(array_column($imports, 0)), array_column($imports, 0));
    }

    /** @dataProvider files */
    public function testAllIsTyped(string $path): void
    {
        if (preg_match('~/src/(.*)\.php$~', (string) realpath($path), $match) !== 1) {
            self::assertFileExists($path);
            return;
        }
        $name = 'Lbd\\' . strtr($match[1], '/', '\\');
        self::assertTrue(class_exists($name) || interface_exists($name), $name);
        $class = new \ReflectionClass($name);
        foreach ($class->getMethods() as $method) {
            if ($method->getDeclaringClass()->getName() !== $name) {
                continue;
            }
            $inherited = is_subclass_of($name, \Psr\Http\Message\StreamInterface::class); // PSR-7 1 has no types
            foreach ($method->getParameters() as $parameter) {
                self::assertTrue($inherited || $parameter->hasType(), "{$method->getName()}: \${$parameter->getName()}");
            }
            $untyped = $inherited || in_array($method->getName(), ['__construct', '__destruct'], true);
            self::assertTrue($untyped || $method->hasReturnType(), $method->getName());
        }
        foreach ($class->getProperties() as $property) {
            self::assertTrue($property->hasType() || $property->getDeclaringClass()->getName() !== $name, $property->getName());
        }
    }
}
