package dev.lbd.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.concurrent.atomic.AtomicReference;

/** Tells the program what happens: its listener, and its logger. Safe for threads. */
final class Hooks {
  private final LbdListener listener; // null for none
  private final Logger logger; // null for none
  private final AtomicReference<State> state = new AtomicReference<>(State.RECOVERED);
  private volatile boolean closed;

  Hooks(LbdListener listener, Logger logger) {
    this.listener = listener;
    this.logger = logger;
  }

  /** Returns what the listener knows of a request that begins. */
  Object begin() {
    Object[] context = {null};
    if (listener != null) {
      run(() -> context[0] = listener.onRequest());
    }
    return context[0];
  }

  /** Returns whether {@link #attempted} does anything. */
  boolean areSet() {
    return listener != null || logger != null;
  }

  void attempted(Attempted attempt) {
    if (logger != null) {
      Choice choice = attempt.choice();
      logger.log(
          Level.DEBUG,
          () ->
              String.format(
                  "lbd: a try has ended: cluster %s, address %s, attempt %d, %s after %s",
                  choice.cluster(),
                  choice.address(),
                  choice.attempt(),
                  attempt.outcome(),
                  attempt.duration()));
    }
    if (listener != null) {
      run(() -> listener.onAttempt(attempt));
    }
  }

  /** Is called with the error of each call to lbd; null after an answer. */
  void reached(Throwable failure) {
    State before = state.get();
    if ((before == State.RECOVERED) != (failure == null)) {
      changed(before, failure == null ? State.RECOVERED : State.UNREACHABLE, failure);
    }
  }

  /** Is called when a request fails because lbd is unreachable and the last batch too old. */
  void stale(Throwable failure) {
    changed(state.get(), State.STALE, failure);
  }

  private void changed(State before, State now, Throwable failure) {
    boolean same = before == now || (before != State.RECOVERED && now == State.UNREACHABLE);
    if (same || closed || !state.compareAndSet(before, now)) {
      return;
    }
    if (logger != null && failure == null) {
      logger.log(Level.INFO, "lbd: lbd answers again");
    } else if (logger != null) {
      logger.log(Level.WARNING, () -> "lbd: lbd is " + now + ": " + failure.getMessage());
    }
    if (listener != null) {
      run(() -> listener.onState(now));
    }
  }

  /** Runs code of the program, which must not break a request. */
  void run(Runnable hook) {
    try {
      hook.run();
    } catch (RuntimeException | Error e) {
      if (logger != null) {
        logger.log(Level.ERROR, "lbd: a hook has failed", e);
      }
    }
  }

  /** Changes of the state are of no interest any more. */
  void close() {
    closed = true;
  }
}
