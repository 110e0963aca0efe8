package dev.lbd.client;

/**
 * One try of a request, at one address. Who sends the request calls {@link #answered} or {@link
 * #failed}, and then {@link #close}. Safe for threads.
 */
public final class Attempt implements AutoCloseable {
  private final String address;
  private final Cluster cluster;
  private final Sender sender;
  private final Lease lease; // null if there is none
  private final Counts.Flight flight; // null if the request is not counted
  private Outcome outcome;
  private boolean closed;

  Attempt(String address, Cluster cluster, Sender sender, Lease lease, boolean counted) {
    this.address = address;
    this.cluster = cluster;
    this.sender = sender;
    this.lease = lease;
    this.flight = counted ? cluster.counts().begin(address) : null;
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
    end(status >= 500 ? Outcome.ERROR : Outcome.SUCCESS);
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
    boolean failed = !Shortage.causes(cause) && end(Outcome.ERROR);
    close();
    return failed;
  }

  /** Sets the outcome, unless there is one. */
  private synchronized boolean end(Outcome result) {
    if (outcome != null || closed) {
      return false;
    }
    outcome = result;
    if (flight != null) {
      flight.answered(result);
    }
    return true;
  }

  /**
   * Reports that the request is not in flight any more. Without an outcome, its caller has given it
   * up. A second call does nothing.
   */
  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    end(Outcome.CANCELLED);
    closed = true;
    if (flight != null) {
      flight.end();
    }
    if (lease != null) {
      sender.end(lease, outcome);
    }
  }
}
