package dev.lbd.client;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;

/** Sends an exchange without waiting in a thread of the caller. */
final class AsyncExchange<T> {
  private final Exchange<T> exchange;
  private final Executor waiting;
  private final CompletableFuture<HttpResponse<T>> result = new CompletableFuture<>();
  private volatile Runnable cancel = () -> {};

  /** Waiting runs what waits for lbd. */
  AsyncExchange(Exchange<T> exchange, Executor waiting) {
    this.exchange = exchange;
    this.waiting = waiting;
  }

  /** Returns the response. Cancelling it ends the request. */
  CompletableFuture<HttpResponse<T>> start() {
    result.whenComplete(
        (response, error) -> {
          if (error instanceof CancellationException) {
            cancel.run();
          }
        });
    run(() -> send(exchange.call().first()));
    return result;
  }

  private interface Step {
    void run() throws IOException, InterruptedException;
  }

  /** Runs a step that may wait for lbd. */
  private void run(Step step) {
    Runnable safe =
        () -> {
          try {
            step.run();
          } catch (InterruptedException e) {
            result.completeExceptionally(new IOException("interrupted", e));
          } catch (IOException | RuntimeException | Error e) {
            result.completeExceptionally(e);
          }
        };
    if (exchange.call().waits()) {
      waiting.execute(safe);
    } else {
      safe.run();
    }
  }

  private void cancelWith(Runnable action) {
    cancel = action;
    if (result.isCancelled()) {
      action.run();
    }
  }

  private void send(Attempt attempt) throws IOException {
    if (result.isDone()) {
      attempt.close();
      return;
    }
    CompletableFuture<HttpResponse<Body<T>>> sent;
    try {
      sent = exchange.sendAsync(attempt);
    } catch (IOException e) {
      attempt.failed(e);
      throw e;
    } catch (RuntimeException | Error e) {
      attempt.close();
      throw e;
    }
    cancelWith(() -> sent.cancel(true));
    sent.whenComplete((response, error) -> run(() -> ended(attempt, response, error)));
  }

  private void ended(Attempt attempt, HttpResponse<Body<T>> response, Throwable error)
      throws IOException, InterruptedException {
    Throwable cause = error instanceof CompletionException ? error.getCause() : error;
    if (result.isDone()) {
      attempt.close();
      if (response != null) {
        response.body().cancel();
      }
      return;
    }
    Optional<Attempt> next = Optional.empty();
    if (cause != null) {
      if (exchange.failed(attempt, cause)) {
        next = exchange.call().retry();
      }
      if (next.isEmpty()) {
        result.completeExceptionally(cause);
        return;
      }
    } else {
      if (Call.isRetried(response.statusCode())) {
        next = exchange.call().retry();
      }
      if (next.isEmpty()) {
        finish(response);
        return;
      }
      response.body().discard();
    }
    send(next.get());
  }

  private void finish(HttpResponse<Body<T>> response) {
    cancelWith(response.body()::cancel);
    exchange
        .answer(response)
        .whenComplete(
            (answer, error) -> {
              if (error == null) {
                result.complete(answer);
              } else {
                result.completeExceptionally(
                    error instanceof CompletionException ? error.getCause() : error);
              }
            });
  }
}
