package dev.lbd.client;

import java.lang.ref.Cleaner;
import java.time.Duration;

/**
 * One try of a request, at one address. Who sends the request calls {@link #answered}, {@link
 * #failed} or {@link #unsent}, and then {@link #close}. An attempt that was forgotten is closed
 * when it is garbage. Safe for threads.
 */
public final class Attempt implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  private final Choice choice;
  private final int number;
  private final Call call;
  private final Duration connectTimeout;
  private final long begin = System.nanoTime();
  private final State state;

  /** Lease and flight are null if there is none. */
  Attempt(
      Choice choice,
      int number,
      Call call,
      Duration connectTimeout,
      Sender sender,
      Lease lease,
      Counts.Flight flight) {
    this.choice = choice;
    this.number = number;
    this.call = call;
    this.connectTimeout = connectTimeout;
    this.state = new State(sender, lease, flight);
    if (lease != null || flight != null) {
      CLEANER.register(this, state);
    }
  }

  /** How far the request is. It does not refer to the attempt, which may be garbage. */
  private static final class State implements Runnable {
    private final Sender sender;
    private final Lease lease; // null if there is none
    private final Counts.Flight flight; // null if the request is not counted
    private Outcome outcome;
    private boolean closed;

    State(Sender sender, Lease lease, Counts.Flight flight) {
      this.sender = sender;
      this.lease = lease;
      this.flight = flight;
    }

    /** Sets the outcome, unless there is one. */
    synchronized boolean end(Outcome result) {
      if (outcome != null || closed) {
        return false;
      }
      outcome = result;
      if (flight != null && result != Outcome.UNREACHABLE) { // that is no request
        flight.answered(result);
      }
      return true;
    }

    /** Closes without an outcome, unless there is one. */
    synchronized boolean withdraw() {
      boolean open = outcome == null && !closed;
      finish();
      return open;
    }

    synchronized void finish() {
      if (closed) {
        return;
      }
      closed = true;
      if (flight != null) {
        flight.end();
      }
      if (lease != null) {
        sender.end(lease, outcome == null ? Outcome.CANCELLED : outcome);
      }
    }

    @Override
    public void run() {
      end(Outcome.CANCELLED);
      finish();
    }
  }

  /**
   * Returns where the request goes.
   *
   * @return HOST:PORT or [IPV6]:PORT
   */
  public String address() {
    return choice.address();
  }

  /**
   * Returns what lbd has chosen.
   *
   * @return the choice
   */
  public Choice choice() {
    return choice.numbered(number);
  }

  /**
   * Returns the time to connect, if the request has so much: less than {@link
   * LbdClient#connectTimeout} while there may be other endpoints.
   *
   * @return the time
   */
  public Duration connectTimeout() {
    return connectTimeout;
  }

  /**
   * Reports that the status and the headers of the response are there. The request is in flight
   * until {@link #close}.
   *
   * @param status the status
   */
  public void answered(int status) {
    Outcome outcome = status >= 500 ? Outcome.ERROR : Outcome.SUCCESS;
    boolean first = state.end(outcome);
    call.answered(this, status);
    if (first) {
      call.ended(this, outcome, status, null);
    }
  }

  /**
   * Reports that there is no response, or no more of it, and closes the attempt. A shortage of this
   * process, such as that of file descriptors, does not count as an error of the endpoint.
   *
   * @param cause why there is no response
   * @return whether the endpoint failed before it answered
   */
  public boolean failed(Throwable cause) {
    return fails(cause, Outcome.ERROR);
  }

  /**
   * Reports that there was no connection, so that nothing was sent, and closes the attempt. {@link
   * Call#retry} permits another one to any request then. A shortage of this process is not an error
   * of the endpoint.
   *
   * @param cause why there was no connection
   * @param timeout whether it took longer than {@link #connectTimeout}
   * @return whether the endpoint is to blame
   */
  public boolean unsent(Throwable cause, boolean timeout) {
    boolean failed = fails(cause, Outcome.UNREACHABLE);
    if (failed && timeout) {
      call.cut(this);
    }
    return failed;
  }

  /** Returns how many nanoseconds ago the attempt began. */
  long age() {
    return System.nanoTime() - begin;
  }

  private boolean fails(Throwable cause, Outcome outcome) {
    boolean failed = !Shortage.causes(cause) && state.end(outcome);
    if (failed) {
      call.failed(this, outcome);
    }
    if (failed || state.end(Outcome.CANCELLED)) {
      call.ended(this, failed ? outcome : Outcome.CANCELLED, 0, cause);
    }
    state.finish();
    return failed;
  }

  /**
   * Reports that the deadline of the request has passed while a connection was made, and closes the
   * attempt. It is not counted.
   *
   * @param cause the error of the request
   */
  public void late(Throwable cause) {
    call.failed(this, Outcome.CANCELLED);
    withdraw(cause);
  }

  /**
   * Reports that the deadline of the request had passed before it could be sent, and closes the
   * attempt. It is not counted, and the endpoint is not to blame.
   *
   * @param cause the error of the request
   */
  public void withdraw(Throwable cause) {
    if (state.withdraw()) {
      call.ended(this, Outcome.CANCELLED, 0, cause);
    }
  }

  /**
   * Reports that the request is not in flight any more. Without an outcome, its caller has given it
   * up. A second call does nothing.
   */
  @Override
  public void close() {
    if (state.end(Outcome.CANCELLED)) {
      call.ended(this, Outcome.CANCELLED, 0, null);
    }
    state.finish();
  }
}
