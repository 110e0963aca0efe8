package dev.lbd.client;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/** Sends an exchange without waiting in a thread of the caller. */
final class AsyncExchange<T> {
  private final Exchange<T> exchange;
  private final Executor waiting;
  private final CompletableFuture<HttpResponse<T>> result = new CompletableFuture<>();
  private volatile Runnable cancel = () -> {};
  private volatile CompletableFuture<Void> late = CompletableFuture.completedFuture(null); // timer

  /** Waiting runs what waits for lbd. */
  AsyncExchange(Exchange<T> exchange, Executor waiting) {
    this.exchange = exchange;
    this.waiting = waiting;
  }

  /** Returns the response. Cancelling it ends the request. */
  CompletableFuture<HttpResponse<T>> start() {
    result.whenComplete(
        (response, error) -> {
          late.complete(null);
          if (error instanceof CancellationException) {
            cancel.run();
          }
        });
    take(() -> Optional.of(exchange.call().first()), () -> {});
    return result;
  }

  /** Gets a try, or none. It may wait for lbd. */
  private interface Source {
    Optional<Attempt> get() throws IOException, InterruptedException;
  }

  /** Sends the try of a source; calls none if it has none. */
  private void take(Source source, Runnable none) {
    Runnable task =
        () -> {
          try {
            if (result.isDone()) {
              return;
            }
            Optional<Attempt> attempt = source.get();
            late.complete(null);
            if (attempt.isPresent()) {
              send(attempt.get());
            } else {
              none.run();
            }
          } catch (InterruptedException e) {
            result.completeExceptionally(new IOException("interrupted", e));
          } catch (IOException | RuntimeException | Error e) {
            result.completeExceptionally(e);
          }
        };
    if (exchange.call().waits()) {
      waitFor(task);
    } else {
      task.run();
    }
  }

  /** Runs a task that waits for lbd. The request does not wait for longer than its deadline. */
  private void waitFor(Runnable task) {
    Deadline deadline = exchange.call().deadline();
    if (deadline.isSet()) {
      CompletableFuture<Void> timer = new CompletableFuture<>();
      late = timer;
      timer
          .orTimeout(deadline.left().toNanos(), TimeUnit.NANOSECONDS)
          .whenComplete(
              (nothing, timeout) -> {
                if (timeout != null) {
                  CompletableFuture.runAsync(this::expire);
                }
              });
    }
    waiting.execute(task);
  }

  private void expire() {
    result.completeExceptionally(new HttpTimeoutException("request timed out"));
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
    sent.whenComplete((response, error) -> ended(attempt, response, error));
  }

  private void ended(Attempt attempt, HttpResponse<Body<T>> response, Throwable error) {
    Throwable failure = error instanceof CompletionException ? error.getCause() : error;
    Throwable cause = failure instanceof IOException e ? exchange.shown(attempt, e) : failure;
    if (result.isDone()) {
      attempt.close();
      if (response != null) {
        response.body().cancel();
      }
    } else if (cause != null) {
      if (exchange.failed(attempt, failure)) {
        take(
            () -> exchange.call().retry(result::isDone), () -> result.completeExceptionally(cause));
      } else {
        result.completeExceptionally(cause);
      }
    } else if (Call.isRetried(response.statusCode())) {
      retry(response);
    } else {
      finish(response);
    }
  }

  /** Sends another try, or returns the response of this one if there is none. */
  private void retry(HttpResponse<Body<T>> response) {
    cancelWith(response.body()::cancel);
    Source other =
        () -> {
          Optional<Attempt> next = exchange.call().retry(result::isDone);
          next.ifPresent(attempt -> response.body().discard());
          return next;
        };
    take(other, () -> finish(response));
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
