package dev.lbd.client;

import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.ResponseInfo;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The body of a response. It is delivered to the handler of the caller, or discarded if the request
 * is retried. Until that is clear, it waits. The request is in flight until the body has ended, or
 * is cancelled. At the deadline of the request, the body fails.
 */
final class Body<T> implements BodySubscriber<Body<T>>, Flow.Subscription {
  private static final Duration DISCARD_TIME = Duration.ofSeconds(1);

  // Fixed.
  private final ResponseInfo info;
  private final BodyHandler<T> handler;
  private final Attempt attempt;
  private final Deadline deadline;

  private volatile CompletionStage<T> value; // null until the body is delivered
  private final ReentrantLock lock = new ReentrantLock();
  private volatile Flow.Subscription source;
  private volatile CompletableFuture<Void> timer;
  private volatile boolean cancelled;
  private volatile boolean expired;

  // Guarded by lock, as are the calls of the target.
  private Flow.Subscriber<List<ByteBuffer>> target;
  private boolean connected;
  private boolean ended;
  private Throwable error;

  Body(ResponseInfo info, BodyHandler<T> handler, Attempt attempt, Deadline deadline) {
    this.info = info;
    this.handler = handler;
    this.attempt = attempt;
    this.deadline = deadline;
  }

  /** Is complete when there is something to do: the value is there, or it has to be delivered. */
  @Override
  public CompletionStage<Body<T>> getBody() {
    CompletionStage<T> current = value;
    return current == null
        ? CompletableFuture.completedStage(this)
        : current.handle((result, failure) -> this);
  }

  /** Returns what the handler of the caller makes of the body, which has been delivered. */
  CompletionStage<T> value() {
    return value;
  }

  /** Gives the body to the handler of the caller. It is called once, or discard is. */
  void deliver() {
    try {
      BodySubscriber<T> subscriber = handler.apply(info);
      value = subscriber.getBody();
      locked(() -> connect(subscriber));
    } catch (RuntimeException | Error e) {
      value = CompletableFuture.failedStage(e);
      discard();
    }
  }

  /** Reads what comes soon, so that the connection can be used again, and ends the attempt. */
  void discard() {
    attempt.close();
    locked(
        () -> {
          arm(deadline.atMost(DISCARD_TIME));
          connect(new Discarding(this));
        });
  }

  private void connect(Flow.Subscriber<List<ByteBuffer>> subscriber) {
    target = subscriber;
    if (!connected && target != null && (source != null || ended)) {
      target.onSubscribe(this); // it may request, and the end may come, before this returns
      connected = true;
      if (ended) {
        tell();
      }
    }
  }

  @Override
  public void onSubscribe(Flow.Subscription subscription) {
    locked(
        () -> {
          source = subscription;
          if (cancelled) {
            subscription.cancel();
          } else if (deadline.isSet() && timer == null) {
            arm(deadline.left());
          }
          connect(target);
        });
  }

  @Override
  public void onNext(List<ByteBuffer> buffers) {
    locked(
        () -> {
          if (!ended) {
            target.onNext(buffers);
          }
        });
  }

  @Override
  public void onError(Throwable cause) {
    locked(() -> end(cause));
  }

  @Override
  public void onComplete() {
    locked(() -> end(null));
  }

  @Override
  public void request(long n) {
    Flow.Subscription current = source;
    if (current != null) {
      current.request(n);
    }
  }

  /** Gives the body up. */
  @Override
  public void cancel() {
    cancelled = true;
    disarm();
    attempt.close();
    Flow.Subscription current = source;
    if (current != null) {
      current.cancel();
    }
  }

  private void end(Throwable cause) {
    if (!ended) {
      ended = true;
      error = cause;
      disarm();
      attempt.close(); // before the caller sees the end
      if (connected) {
        tell();
      }
    }
  }

  private void tell() {
    if (error == null) {
      target.onComplete();
    } else {
      target.onError(error);
    }
  }

  private void locked(Runnable action) {
    lock.lock();
    try {
      action.run();
    } finally {
      lock.unlock();
    }
    if (expired) {
      expire();
    }
  }

  private void arm(Duration time) {
    disarm();
    if (ended) {
      return;
    }
    CompletableFuture<Void> armed = new CompletableFuture<>();
    armed
        .orTimeout(time.toNanos(), TimeUnit.NANOSECONDS)
        .whenComplete(
            (value, timeout) -> {
              if (timeout != null) {
                CompletableFuture.runAsync(this::expire);
              }
            });
    timer = armed;
  }

  private void disarm() {
    CompletableFuture<Void> armed = timer;
    if (armed != null) {
      armed.complete(null);
    }
  }

  /** Fails the body, now or when the target has returned from a call. */
  private void expire() {
    expired = true;
    Flow.Subscription current = source;
    if (current != null) {
      current.cancel();
    }
    if (lock.tryLock()) {
      try {
        end(new HttpTimeoutException("request timed out"));
      } finally {
        lock.unlock();
      }
    }
  }

  /** Reads the rest of a short body. */
  private static final class Discarding implements Flow.Subscriber<List<ByteBuffer>> {
    private static final long MAX_BYTES = 64 << 10;

    private final Body<?> body;
    private long left = MAX_BYTES;

    Discarding(Body<?> body) {
      this.body = body;
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
      subscription.request(Long.MAX_VALUE);
    }

    @Override
    public void onNext(List<ByteBuffer> buffers) {
      for (ByteBuffer buffer : buffers) {
        left -= buffer.remaining();
      }
      if (left < 0) {
        body.cancel();
      }
    }

    @Override
    public void onError(Throwable cause) {}

    @Override
    public void onComplete() {}
  }
}
