package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;

/** One request to a cluster, with all of its tries. One thread at a time uses it. */
public final class Call {
  private static final Duration MAX_WAIT = Duration.ofSeconds(5);
  private static final Duration LEASE_GRACE = Duration.ofSeconds(5);
  private static final Duration MAX_TTL = Duration.ofMinutes(10); // default of lbd's --max-ttl
  private static final int MAX_HURRIED = 3; // connects with less time
  private static final Duration OTHER_TIME = Duration.ofSeconds(1); // for endpoints not tried yet
  private static final Duration OTHER_PAUSE = Duration.ofMillis(200);
  private static final String ALL_EXCLUDED = "all_excluded";

  private final LbdClient client;
  private final Cluster cluster;
  private final Deadline deadline;
  private final Set<String> tried = new LinkedHashSet<>();
  private final boolean repeatable;
  private int tries;
  private int moves; // tries that were not sent
  private boolean cut; // a connect had too little time
  private Lease lease; // of the last try
  private boolean unsent; // the last try was not sent
  private boolean again; // its address is one that was tried before
  private boolean fallback; // its address is not from lbd

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
    if (client.settings().mode() != Mode.BATCH || !cluster.ready()) {
      return true;
    }
    Batch batch = cluster.batch();
    return unsent && !(cut && !again) && batch.draw(any -> !tried.contains(any)) == null;
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
      String address = client.settings().fallback();
      if (address == null || !e.code().isEmpty() || client.isClosed()) {
        throw e; // with a code, lbd has answered
      }
      fallback = true;
      return new Attempt(address, this, client.connectTimeout(), client.sender(), null, null);
    }
  }

  /**
   * Returns the next try, after one that failed: it was not {@linkplain Attempt#unsent sent}, or
   * the connection ended before the status line, or the status {@link #isRetried}. Without a
   * connection, that is another address for any request; else a retry, if the request is repeatable
   * and the budget permits it.
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
    Outcome outcome = unsent ? Outcome.UNREACHABLE : Outcome.ERROR;
    if (unsent) {
      unsent = false;
      moves++;
    } else if (!cluster.budget().failed()
        || !repeatable
        || tries - moves > client.settings().retries()) {
      return Optional.empty();
    }
    if (fallback || tries >= Cluster.MAX_TRIED || deadline.passed() || client.isClosed()) {
      return Optional.empty();
    }
    // lbd hears of a try that was not sent, and may choose endpoints of another priority.
    Deadline end =
        Deadline.after(outcome == Outcome.ERROR ? Duration.ZERO : deadline.atMost(OTHER_TIME));
    if (client.settings().mode() == Mode.BATCH) {
      String address = other(end);
      return address == null || over.getAsBoolean()
          ? Optional.empty()
          : Optional.of(at(address, null));
    }
    try {
      // lbd may need its place in the circuit breaker.
      boolean ended = lease == null || client.sender().endFailed(lease, outcome, deadline);
      return ended && !over.getAsBoolean() ? Optional.of(pickOther(end, over)) : Optional.empty();
    } catch (LbdException e) {
      return Optional.empty();
    }
  }

  /**
   * Returns an address that {@link #draw} does, of the batch or of one that comes before an end.
   */
  private String other(Deadline end) throws InterruptedException {
    String address = null;
    for (Batch batch = cluster.batch(); batch != null; batch = cluster.next(batch, end)) {
      address = draw(batch);
      if (address != null) {
        break;
      }
    }
    return address;
  }

  /** Returns an address that was not tried, or else one that may need more time; null for none. */
  private String draw(Batch batch) {
    Predicate<String> untried = any -> !tried.contains(any);
    String address = batch.draw(untried.and(any -> !cluster.asides().avoids(any)));
    if (address == null) {
      address = batch.draw(untried);
    }
    if (address == null && cut && !again) {
      again = true;
      address = batch.draw(tried::contains);
    }
    return address;
  }

  private Attempt pickOther(Deadline end, BooleanSupplier over)
      throws LbdException, InterruptedException {
    while (true) {
      try {
        return pick();
      } catch (UnavailableException e) {
        if (!e.code().equals(ALL_EXCLUDED)) {
          throw e;
        }
        if (cut && !again) {
          again = true;
          return ask(Set.of());
        }
        if (end.passed() || over.getAsBoolean() || client.isClosed()) {
          throw e;
        }
      }
      Thread.sleep(end.atMost(OTHER_PAUSE).toMillis());
    }
  }

  void answered(Attempt attempt, int status) {
    if (!isRetried(status)) {
      cluster.budget().succeeded();
    }
    if (fallback) {
      return;
    }
    cluster.asides().answered(attempt.address());
    boolean full = attempt.connectTimeout().equals(client.connectTimeout());
    if (cluster.connects().areLong() || (cut && full)) {
      cluster.connects().add(attempt.age());
    }
  }

  void failed(Attempt attempt, Outcome outcome) {
    unsent = outcome == Outcome.UNREACHABLE;
    if (fallback) {
      return;
    }
    cluster.failed(attempt.address(), !unsent);
    if (unsent && lease == null) { // else the end of the lease says it
      client.sender().unreachable(cluster.name(), attempt.address());
    }
  }

  /** Remembers that a try was not connected in its time. */
  void cut(Attempt attempt) {
    cut |= attempt.connectTimeout().compareTo(client.connectTimeout()) < 0;
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
    tries++;
    this.lease = lease;
    Counts.Flight flight = null;
    if (client.settings().mode() == Mode.BATCH) {
      flight = cluster.counts().begin(address);
    } else {
      cluster.asides().avoids(address); // this may be the trial
    }
    Duration time = client.connectTimeout();
    Duration limit = cluster.connects().limit();
    if (moves < MAX_HURRIED && !again && limit.compareTo(time) < 0) {
      time = limit;
    }
    return new Attempt(address, this, time, client.sender(), lease, flight);
  }

  /** Asks for an address that was not tried, and only if need be for one that is set aside. */
  private Attempt pick() throws LbdException, InterruptedException {
    Set<String> excluded = new LinkedHashSet<>(tried);
    excluded.addAll(cluster.asides().avoided());
    try {
      return ask(excluded);
    } catch (UnavailableException e) {
      if (!e.code().equals(ALL_EXCLUDED) || excluded.size() == tried.size()) {
        throw e;
      }
      return ask(tried);
    }
  }

  private Attempt ask(Set<String> excluded) throws LbdException, InterruptedException {
    Duration wait = deadline.atMost(MAX_WAIT);
    StringBuilder target =
        new StringBuilder("/v1/pick?cluster=").append(Api.encode(cluster.name()));
    target.append("&wait=").append(Api.duration(wait));
    excluded.stream()
        .limit(Cluster.MAX_TRIED)
        .forEach(address -> target.append("&exclude=").append(Api.encode(address)));
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
