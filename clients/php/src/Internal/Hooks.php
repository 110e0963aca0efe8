<?php

declare(strict_types=1);

namespace Lbd\Internal;

use Lbd\Exception\LbdException;
use Lbd\State;
use Lbd\Tried;

/** What the program wants to know: hooks, and a logger of PSR-3. */
final class Hooks
{
    private State $state = State::Recovered;

    /**
     * @param ?\Closure(Tried): mixed $onAttempt
     * @param ?\Closure(State): mixed $onState
     * @param ?\Psr\Log\LoggerInterface $logger an object with its methods
     */
    public function __construct(
        private readonly ?\Closure $onAttempt,
        private readonly ?\Closure $onState,
        private readonly ?object $logger,
    ) {
    }

    /** Tells of the end of a try. */
    public function attempted(Tried $tried): void
    {
        $this->safely(function () use ($tried): void {
            $this->logger?->debug('lbd: a try has ended', [
                'cluster' => $tried->choice->cluster,
                'address' => $tried->choice->address,
                'attempt' => $tried->choice->attempt,
                'outcome' => $tried->outcome,
                'duration' => $tried->duration,
            ]);
        });
        $this->safely(fn () => $this->onAttempt === null ? null : ($this->onAttempt)($tried));
    }

    /**
     * Tells of changes of the state, by how a call to lbd has ended.
     *
     * @param array<mixed>|Unreachable|LbdException $answer
     */
    public function reached(array|Unreachable|LbdException $answer): void
    {
        if (!$answer instanceof Unreachable) {
            $this->changed(State::Recovered, '');
        } elseif ($this->state === State::Recovered) {
            $this->changed(State::Unreachable, $answer->getMessage());
        }
    }

    /** Tells of a state, unless it is the old one. */
    public function changed(State $state, string $error): void
    {
        if ($this->state === $state) {
            return;
        }
        $this->state = $state;
        $this->safely(fn () => $state === State::Recovered
            ? $this->logger?->info('lbd: lbd answers again')
            : $this->logger?->warning('lbd: lbd does not answer', ['state' => $state->value, 'error' => $error]));
        $this->safely(fn () => $this->onState === null ? null : ($this->onState)($state));
    }

    /** An error of the program must not break a request. */
    private function safely(\Closure $call): void
    {
        try {
            $call();
        } catch (\Throwable $error) {
            try {
                $this->logger?->error('lbd: a hook has failed', ['exception' => $error]);
            } catch (\Throwable) {
            }
        }
    }
}
