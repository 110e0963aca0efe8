package dev.lbd.client;

import java.lang.ref.Cleaner;

/**
 * One try of a request, at one address. Who sends the request calls {@link #answered} or {@link
 * #failed}, and then {@link #close}. An attempt that was forgotten is closed when it is garbage.
 * Safe for threads.
 */
public final class Attempt implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  private final String address;
  private final Cluster cluster;
  private final State state;

  Attempt(String address, Cluster cluster, Sender sender, Lease lease, boolean counted) {
    this.address = address;
    this.cluster = cluster;
    this.state = new State(sender, lease, counted ? cluster.counts().begin(address) : null);
    if (lease != null || counted) {
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
      if (flight != null) {
        flight.answered(result);
      }
      return true;
    }

    synchronized void close() {
      end(Outcome.CANCELLED);
      finish();
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
      close();
    }
  }

  /**
   * Returns where the request goes.
   *
   * @return HOST:PORT or [IPV6]:PORT
   */
  public String address() {
    return address;
  }

  /**
   * Reports that the status and the headers of the response are there. The request is in flight
   * until {@link #close}.
   *
   * @param status the status
   */
  public void answered(int status) {
    state.end(status >= 500 ? Outcome.ERROR : Outcome.SUCCESS);
    if (!Call.isRetried(status)) {
      cluster.budget().succeeded();
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
    boolean failed = !Shortage.causes(cause) && state.end(Outcome.ERROR);
    state.close();
    return failed;
  }

  /**
   * Reports that the request was not sent, because its deadline had passed before, and closes the
   * attempt. It is not counted.
   */
  public void withdraw() {
    state.finish();
  }

  /**
   * Reports that the request is not in flight any more. Without an outcome, its caller has given it
   * up. A second call does nothing.
   */
  @Override
  public void close() {
    state.close();
  }
}
