package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** One request to a cluster, with all of its tries. One thread at a time uses it. */
public final class Call {
  private static final Duration MAX_WAIT = Duration.ofSeconds(5);
  private static final Duration LEASE_GRACE = Duration.ofSeconds(5);
  private static final Duration MAX_TTL = Duration.ofMinutes(10); // default of lbd's --max-ttl
  private static final int MAX_HURRIED = 3; // connects with less time
  private static final Duration OTHER_TIME = Duration.ofSeconds(1); // for endpoints not tried yet
  private static final Duration OTHER_PAUSE = Duration.ofMillis(200);
  // lbd permits 32 KiB with what is excluded: its answer to what is much longer has no code.
  private static final int MAX_QUERY = 24 * 1024;
  private static final String ALL_EXCLUDED = "all_excluded";

  private final LbdClient client;
  private final Cluster cluster;
  private final String query; // what the request asks beside its cluster
  private final Consumer<Choice> choice; // gets the choices; null for nobody
  private final Deadline deadline;
  private final Set<String> tried = new LinkedHashSet<>();
  private final boolean repeatable;
  private final Object context; // of the listener
  private Object request; // for the listener
  private int tries;
  private int moves; // tries that were not sent
  private boolean cut; // a connect had too little time
  private Lease lease; // of the last try
  private boolean unsent; // the last try was not sent
  private boolean lost; // it had no answer
  private boolean again; // its address is one that was tried before
  private boolean fallback; // its address is not from lbd

  Call(LbdClient client, Cluster cluster, Ask ask, Deadline deadline, boolean repeatable)
      throws UnavailableException {
    this.client = client;
    this.cluster = cluster;
    this.query = ask.query(cluster.name());
    if (query.length() > MAX_QUERY) {
      throw UnavailableException.tooLong(cluster.name(), "the request asks more than 24 KiB");
    }
    this.choice = ask.choice();
    this.context = client.hooks().begin();
    this.deadline = deadline;
    this.repeatable = repeatable;
  }

  /**
   * Sets the request for {@link Attempted#request}.
   *
   * @param request the request of the HTTP library
   * @return this
   */
  public Call about(Object request) {
    this.request = request;
    return this;
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
    if (!isBatch()) {
      return true;
    }
    if (asks()) {
      return !cluster.ready(query + excluding(avoided()));
    }
    Batch batch = cluster.batch();
    return batch == null
        || !cluster.ready("")
        || (lost && !(cut && !again) && batch.draw(any -> !tried.contains(any)) == null);
  }

  /** Returns whether the batch for the next try is one of its own. */
  private boolean asks() {
    Batch last = cluster.batch();
    return !query.isEmpty() || (tries > 0 && last != null && !last.query().isEmpty());
  }

  private boolean isBatch() {
    return client.settings().mode() == Mode.BATCH;
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
      return isBatch() && query.isEmpty() ? take("") : pick();
    } catch (UnavailableException e) {
      String address = client.settings().fallback();
      if (address == null || !e.code().isEmpty() || client.isClosed()) {
        throw e; // with a code, lbd has answered
      }
      fallback = true;
      return at(Choice.fallback(cluster.name(), address), null, null);
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
    // lbd hears now of connects that failed, and may choose endpoints of another priority.
    Deadline end = Deadline.after(lost ? deadline.atMost(OTHER_TIME) : Duration.ZERO);
    lost = false;
    if (isBatch() && !asks()) {
      Batch.Element other = other(end);
      return other == null || over.getAsBoolean()
          ? Optional.empty()
          : Optional.of(at(other.choice(), other.counts(), null));
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
   * Returns an element that {@link #draw} does, of the batch or of one that comes before an end.
   */
  private Batch.Element other(Deadline end) throws InterruptedException {
    Batch.Element other = null;
    for (Batch batch = cluster.batch(); batch != null; batch = cluster.next(batch, end)) {
      other = draw(batch);
      if (other != null) {
        break;
      }
    }
    return other;
  }

  /** Returns an element that was not tried, or else one that may need more time; null for none. */
  private Batch.Element draw(Batch batch) {
    Predicate<String> untried = any -> !tried.contains(any);
    Batch.Element other = batch.draw(untried.and(any -> !cluster.asides().avoids(any)));
    if (other == null) {
      other = batch.draw(untried);
    }
    if (other == null && cut && !again) {
      again = true;
      other = batch.draw(tried::contains);
    }
    return other;
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
    lost = true;
    if (fallback) {
      return;
    }
    cluster.failed(attempt.address(), !unsent);
    if (unsent && lease == null) { // else the end of the lease says it
      client.sender().unreachable(attempt.choice().cluster(), attempt.address());
    }
  }

  /** Tells the program that a try has ended. */
  void ended(Attempt attempt, Outcome outcome, int status, Throwable error) {
    if (client.hooks().areSet()) {
      Duration duration = Duration.ofNanos(attempt.age());
      client
          .hooks()
          .attempted(
              new Attempted(attempt.choice(), outcome, duration, request, status, error, context));
    }
  }

  /** Remembers that a try was not connected in its time. */
  void cut(Attempt attempt) {
    cut |= attempt.connectTimeout().compareTo(client.connectTimeout()) < 0;
  }

  /** Takes the next element of the batch for a query. */
  private Attempt take(String query) throws LbdException, InterruptedException {
    Batch.Element element = cluster.take(query, tried.isEmpty(), deadline);
    if (element.refusal() != null) {
      throw element.refusal().copy();
    }
    client.sender().start();
    return at(element.choice(), element.counts(), null);
  }

  /** Returns a try. Counts and lease are null if there is none. */
  private Attempt at(Choice chosen, Counts counts, Lease lease) {
    tried.add(chosen.address());
    tries++;
    this.lease = lease;
    Duration time = client.connectTimeout();
    Duration limit = cluster.connects().limit();
    if (moves < MAX_HURRIED && !again && !fallback && limit.compareTo(time) < 0) {
      time = limit;
    }
    Counts.Flight flight = counts == null ? null : counts.begin(chosen.address());
    Attempt attempt = new Attempt(chosen, tries, this, time, client.sender(), lease, flight);
    if (choice != null) {
      client.hooks().run(() -> choice.accept(attempt.choice()));
    }
    return attempt;
  }

  /** Returns the addresses that were tried, and those that are set aside. */
  private Set<String> avoided() {
    Set<String> avoided = new LinkedHashSet<>(tried);
    avoided.addAll(cluster.asides().avoided());
    return avoided;
  }

  private static String excluding(Set<String> addresses) {
    return addresses.stream()
        .limit(Cluster.MAX_TRIED)
        .map(address -> Asked.EXCLUDE + Api.encode(address))
        .collect(Collectors.joining());
  }

  /** Asks for an address that was not tried, and only if need be for one that is set aside. */
  private Attempt pick() throws LbdException, InterruptedException {
    Set<String> excluded = avoided();
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
    String asked = query + excluding(excluded);
    if (isBatch()) {
      return take(asked);
    }
    Duration wait = deadline.atMost(MAX_WAIT);
    StringBuilder target =
        new StringBuilder("/v1/pick?").append(Host.parameter(cluster.name())).append(asked);
    target.append("&wait=").append(Api.duration(wait));
    Duration ttl = null;
    if (client.settings().mode() == Mode.LEASE) {
      ttl = deadline.isSet() ? deadline.left().plus(LEASE_GRACE) : client.settings().ttl();
      ttl = ttl.compareTo(MAX_TTL) < 0 ? ttl : MAX_TTL;
      target.append("&ttl=").append(Api.duration(ttl));
      target.append("&owner=").append(Api.encode(client.settings().owner()));
    }
    try {
      String method = ttl == null ? "GET" : "POST";
      var answer =
          client
              .api()
              .call(
                  null,
                  cluster.name(),
                  method,
                  target.toString(),
                  null,
                  wait.plusSeconds(1),
                  Deadline.NEVER);
      Choice chosen = Choice.ofPick(cluster.name(), answer);
      Lease lease = ttl == null ? null : new Lease(leaseId(answer), ttl);
      if (lease != null && !client.sender().hold(lease)) {
        throw new UnavailableException(cluster.name(), "the client is closed", null);
      }
      cluster.pick();
      cluster.asides().avoids(chosen.address()); // this may be the trial
      return at(chosen, null, lease);
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
