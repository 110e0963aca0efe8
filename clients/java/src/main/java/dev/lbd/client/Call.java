package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BooleanSupplier;

/** One request to a cluster, with all of its tries. One thread at a time uses it. */
public final class Call {
  private static final Duration MAX_WAIT = Duration.ofSeconds(5);
  private static final Duration LEASE_GRACE = Duration.ofSeconds(5);
  private static final Duration MAX_TTL = Duration.ofMinutes(10); // default of lbd's --max-ttl

  private final LbdClient client;
  private final Cluster cluster;
  private final Deadline deadline;
  private final Set<String> tried = new LinkedHashSet<>();
  private boolean repeatable;
  private Lease lease; // of the last try

  Call(LbdClient client, Cluster cluster, Deadline deadline, boolean repeatable) {
    this.client = client;
    this.cluster = cluster;
    this.deadline = deadline;
    this.repeatable = repeatable;
  }

  /**
   * Returns the deadline of the request.
   *
   * @return the deadline
   */
  public Deadline deadline() {
    return deadline;
  }

  /**
   * Returns whether a try that ended with this status failed.
   *
   * @param status status of the response
   * @return true for 502, 503 and 504
   */
  public static boolean isRetried(int status) {
    return status >= 502 && status <= 504;
  }

  /**
   * Returns whether {@link #first} and {@link #retry} may wait for lbd.
   *
   * @return false if they return at once
   */
  public boolean waits() {
    return client.settings().mode() != Mode.BATCH || !cluster.ready();
  }

  /**
   * Returns the first try.
   *
   * @return the try
   * @throws LbdException there is no endpoint for it
   * @throws InterruptedException the thread was interrupted while it waited for lbd
   */
  public Attempt first() throws LbdException, InterruptedException {
    try {
      return take();
    } catch (UnavailableException e) {
      String fallback = client.settings().fallback();
      if (fallback == null || !e.code().isEmpty() || client.isClosed()) {
        throw e; // with a code, lbd has answered
      }
      repeatable = false;
      return new Attempt(fallback, cluster, client.sender(), null, false);
    }
  }

  /**
   * Returns the next try, after one that failed: there was no connection, or it ended before the
   * status line, or the status {@link #isRetried}.
   *
   * @return the try; empty if the result of the last one is that of the request
   * @throws InterruptedException the thread was interrupted while it waited for lbd
   */
  public Optional<Attempt> retry() throws InterruptedException {
    return retry(() -> false);
  }

  /**
   * Returns the next try as {@link #retry()}, unless the caller has given the request up.
   *
   * @param over whether it has; called after the client has waited for lbd
   * @return the try; empty if the result of the last one is that of the request
   * @throws InterruptedException the thread was interrupted while it waited for lbd
   */
  public Optional<Attempt> retry(BooleanSupplier over) throws InterruptedException {
    boolean permitted = cluster.budget().failed();
    if (!permitted || !repeatable || tried.size() > client.settings().retries()) {
      return Optional.empty();
    }
    if (deadline.passed() || client.isClosed()) {
      return Optional.empty();
    }
    if (client.settings().mode() == Mode.BATCH) {
      return Optional.ofNullable(cluster.takeOther(tried)).map(address -> at(address, null));
    }
    try {
      // lbd may need its place in the circuit breaker.
      boolean ended = lease == null || client.sender().endFailed(lease, deadline);
      return ended && !over.getAsBoolean() ? Optional.of(pick()) : Optional.empty();
    } catch (LbdException e) {
      return Optional.empty();
    }
  }

  private Attempt take() throws LbdException, InterruptedException {
    if (client.settings().mode() != Mode.BATCH) {
      return pick();
    }
    Batch.Element element = cluster.take(deadline);
    if (element.refusal() != null) {
      throw element.refusal().copy();
    }
    client.sender().start();
    return at(element.address(), null);
  }

  private Attempt at(String address, Lease lease) {
    tried.add(address);
    this.lease = lease;
    boolean counted = client.settings().mode() == Mode.BATCH;
    return new Attempt(address, cluster, client.sender(), lease, counted);
  }

  private Attempt pick() throws LbdException, InterruptedException {
    Duration wait = deadline.atMost(MAX_WAIT);
    StringBuilder target =
        new StringBuilder("/v1/pick?cluster=").append(Api.encode(cluster.name()));
    target.append("&wait=").append(Api.duration(wait));
    tried.forEach(address -> target.append("&exclude=").append(Api.encode(address)));
    Duration ttl = null;
    if (client.settings().mode() == Mode.LEASE) {
      ttl = deadline.isSet() ? deadline.left().plus(LEASE_GRACE) : client.settings().ttl();
      ttl = ttl.compareTo(MAX_TTL) < 0 ? ttl : MAX_TTL;
      target.append("&ttl=").append(Api.duration(ttl));
      target.append("&owner=").append(Api.encode(client.settings().owner()));
    }
    try {
      Deadline until = Deadline.after(wait.plusSeconds(1));
      String method = ttl == null ? "GET" : "POST";
      var answer = client.api().call(cluster.name(), method, target.toString(), null, until);
      String address = Batch.address(answer);
      Lease lease = ttl == null ? null : new Lease(leaseId(answer), ttl);
      if (lease != null && !client.sender().hold(lease)) {
        throw new UnavailableException(cluster.name(), "the client is closed", null);
      }
      return at(address, lease);
    } catch (LbdException e) {
      throw e;
    } catch (IOException | IllegalArgumentException e) {
      throw new UnavailableException(cluster.name(), "lbd is unreachable: " + e.getMessage(), e);
    }
  }

  private static String leaseId(Map<String, Object> answer) {
    if (answer.get("lease") instanceof Map<?, ?> lease && lease.get("id") instanceof String id) {
      return id;
    }
    throw new IllegalArgumentException("an answer without a lease");
  }
}
