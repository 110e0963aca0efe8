package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/**
 * Sends reports, and renews and ends leases, in the background. A call that gets no answer does not
 * hold up the others. Safe for threads.
 */
final class Sender {
  private static final int MAX_RENEWING = 32; // calls at the same time
  private static final int MAX_ENDING = 8;
  private static final int LEASES_AT_ONCE = 1000;
  private static final int MAX_WAITING = 100_000;
  private static final int REPORT_ENDPOINTS = 1000;
  // Outlier detection waits for errors: a cluster with so many is reported after this time already.
  private static final int EARLY_ERRORS = 5;
  private static final Duration EARLY_INTERVAL = Duration.ofSeconds(1);
  private static final Duration RENEW_CHECK = Duration.ofMillis(200);
  private static final Duration RENEW_PAUSE = Duration.ofSeconds(1);
  private static final Duration TELL_PAUSE = Duration.ofMillis(50);
  private static final Duration RETRY_PAUSE = Duration.ofMillis(500);
  private static final Duration MIN_INTERVAL = Duration.ofMillis(100);
  private static final Duration MAX_INTERVAL = Duration.ofMinutes(5);

  // Fixed.
  private final Api api;
  private final Collection<Cluster> clusters;
  private final String reporter;
  private final Duration interval;

  private final ThreadPoolExecutor renewing = threads("lbd renews", MAX_RENEWING);
  private final ThreadPoolExecutor ending = threads("lbd ends leases", MAX_ENDING);

  private final Map<String, Held> held = new ConcurrentHashMap<>();
  private final LinkedBlockingQueue<End> ended = new LinkedBlockingQueue<>(MAX_WAITING);
  private final AtomicInteger enders = new AtomicInteger(); // tasks of ending
  private volatile Thread reports;
  private volatile Thread renewals;
  private volatile boolean idle; // no lease is held
  private volatile boolean closed;
  private Map<Failure, Integer> failures; // guarded by this; null without a thread that tells them

  private record Held(Lease lease, Deadline renewal) {}

  private record End(String id, Outcome outcome) {}

  /** What connects failed to. */
  private record Failure(String cluster, String address) {}

  Sender(Api api, Collection<Cluster> clusters, String reporter, Duration interval) {
    this.api = api;
    this.clusters = clusters;
    this.reporter = reporter;
    this.interval = interval;
  }

  private static ThreadPoolExecutor threads(String name, int most) {
    ThreadPoolExecutor threads =
        new ThreadPoolExecutor(
            most,
            most,
            10,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> Background.thread(name, task),
            new ThreadPoolExecutor.DiscardPolicy());
    threads.allowCoreThreadTimeOut(true);
    return threads;
  }

  /** Begins to send reports. */
  void start() {
    if (reports == null) {
      synchronized (this) {
        if (reports == null && !closed) {
          Thread thread = Background.thread("lbd reports", this::sendReports);
          thread.start();
          reports = thread;
        }
      }
    }
  }

  /** Renews a lease until it is ended. If the client is closed, ends it, and returns false. */
  boolean hold(Lease lease) throws InterruptedException {
    held.put(lease.id(), new Held(lease, Deadline.after(lease.ttl().dividedBy(2))));
    if (closed) {
      if (held.remove(lease.id()) != null) {
        sendEnded(List.of(new End(lease.id(), Outcome.CANCELLED)), null);
      }
      return false;
    }
    if (renewals == null) {
      synchronized (this) {
        if (renewals == null && !closed) {
          Thread thread = Background.thread("lbd leases", this::renewAll);
          thread.start();
          renewals = thread;
        }
      }
    }
    if (idle) {
      idle = false;
      LockSupport.unpark(renewals);
    }
    return true;
  }

  /** Ends a lease in the background. If too many ends wait for lbd, the lease expires. */
  void end(Lease lease, Outcome outcome) {
    if (held.remove(lease.id()) != null && ended.offer(new End(lease.id(), outcome))) {
      endSoon();
    }
  }

  /**
   * Ends the lease of a try that failed, and waits for it. {@link #end} does so again: lbd answers
   * both alike.
   *
   * @return whether lbd has ended it in time for another try, and the client is not closed
   */
  boolean endFailed(Lease lease, Outcome outcome, Deadline deadline) throws InterruptedException {
    try {
      call("/v1/leases/done", json(List.of(new End(lease.id(), outcome))), deadline);
      return !deadline.passed() && !closed;
    } catch (IOException e) {
      return false; // lbd would not grant another lease, either
    }
  }

  private void endSoon() {
    for (int n = enders.get(); n < MAX_ENDING && !closed; n = enders.get()) {
      if (enders.compareAndSet(n, n + 1)) {
        ending.execute(this::sendAllEnded);
        return;
      }
    }
  }

  /** Sends the last report, and ends all leases. */
  void close(Deadline deadline) throws InterruptedException {
    Thread reporting;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      reporting = reports;
    }
    LockSupport.unpark(renewals);
    renewing.shutdownNow();
    ending.shutdown();
    // What is under way may come to its end.
    Deadline half = Deadline.after(deadline.left().dividedBy(2));
    ending.awaitTermination(half.left().toNanos(), TimeUnit.NANOSECONDS);
    if (reporting != null) {
      LockSupport.unpark(reporting);
      reporting.join(Math.max(1, half.left().toMillis()));
    }
    for (Held entry : held.values()) {
      end(entry.lease, Outcome.CANCELLED);
    }
    List<End> rest = takeEnded();
    while (!rest.isEmpty() && !deadline.passed() && sendEnded(rest, deadline)) {
      rest = takeEnded();
    }
    if (!deadline.passed()) {
      report(deadline, 0);
    }
    if (!deadline.passed()) {
      tell(deadline);
    }
  }

  /** Has lbd told of a connect that failed, together with others of the next 50 ms. */
  synchronized void unreachable(String cluster, String address) {
    if (closed) {
      return;
    }
    if (failures == null) {
      Background.thread("lbd connect failures", this::tellAll).start();
      failures = new HashMap<>();
    }
    Failure failure = new Failure(cluster, address);
    if (failures.size() < REPORT_ENDPOINTS || failures.containsKey(failure)) {
      failures.merge(failure, 1, Integer::sum);
    }
  }

  /** Reports connects that failed, until there are no more. */
  private void tellAll() {
    try {
      do {
        Thread.sleep(TELL_PAUSE.toMillis());
      } while (!closed && tell(null));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Reports connects that failed; if there are none, returns false, and the thread ends. */
  private boolean tell(Deadline deadline) throws InterruptedException {
    Map<Failure, Integer> told;
    synchronized (this) {
      told = failures;
      failures = told == null || told.isEmpty() ? null : new HashMap<>();
    }
    if (told == null || told.isEmpty()) {
      return false;
    }
    Map<String, String> endpoints = new HashMap<>(); // by cluster
    told.forEach(
        (failure, count) -> {
          String address = "{\"address\":" + Json.quote(failure.address);
          String endpoint = address + ",\"connect_failures\":" + count + "}";
          endpoints.merge(failure.cluster, endpoint, (all, one) -> all + "," + one);
        });
    try {
      call("/v1/reports", json(endpoints, ""), deadline);
    } catch (IOException | RuntimeException e) {
      // what lbd does not hear now would come too late
    }
    return true;
  }

  private void sendReports() {
    Deadline next = Deadline.after(interval);
    while (!closed) {
      try {
        LockSupport.parkNanos(next.atMost(EARLY_INTERVAL).toNanos());
        boolean early = !next.passed();
        next = early ? next : Deadline.after(interval);
        if (!closed) {
          report(null, early ? EARLY_ERRORS : 0);
        }
      } catch (Throwable e) { // the thread has to survive whatever comes
        LockSupport.parkNanos(RETRY_PAUSE.toNanos());
      }
    }
  }

  /** Ends leases until none is left. */
  private void sendAllEnded() {
    try {
      for (List<End> ends = takeEnded(); !ends.isEmpty(); ends = takeEnded()) {
        boolean sent = sendEnded(ends, null);
        if (closed) {
          return;
        }
        if (!sent) {
          Thread.sleep(RETRY_PAUSE.toMillis());
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } finally {
      enders.decrementAndGet();
      if (!ended.isEmpty()) {
        endSoon();
      }
    }
  }

  private List<End> takeEnded() {
    List<End> ends = new ArrayList<>();
    ended.drainTo(ends, LEASES_AT_ONCE);
    return ends;
  }

  /** Ends leases. If that fails, puts them back, and returns false. */
  private boolean sendEnded(List<End> ends, Deadline deadline) throws InterruptedException {
    try {
      call("/v1/leases/done", json(ends), deadline);
      return true;
    } catch (IOException e) {
      if (codeOf(e).equals("invalid_argument")) {
        return true; // it would be the answer to the next call, too
      }
      ends.forEach(ended::offer);
      return false;
    }
  }

  /** Renews the leases that have had half of their time. */
  private void renewAll() {
    while (!closed) {
      try {
        for (Held entry : held.values()) {
          Lease lease = entry.lease;
          Held later = new Held(lease, Deadline.after(lease.ttl())); // renew sets it again
          if (entry.renewal.passed() && held.replace(lease.id(), entry, later)) {
            renewing.execute(() -> renew(lease));
          }
        }
        idle = true; // before the look at held: either this or hold sees the other
        idle = held.isEmpty();
        if (idle) {
          LockSupport.park(this);
        } else {
          LockSupport.parkNanos(this, RENEW_CHECK.toNanos());
        }
      } catch (Throwable e) { // the thread has to survive whatever comes
        LockSupport.parkNanos(RETRY_PAUSE.toNanos());
      }
    }
  }

  private void renew(Lease lease) {
    if (!held.containsKey(lease.id())) {
      return;
    }
    Duration next = lease.ttl().dividedBy(2);
    String target = "/v1/leases/" + Api.encode(lease.id()) + "/renew";
    try {
      call(target + "?ttl=" + Api.duration(lease.ttl()), null, null);
    } catch (IOException e) {
      if (codeOf(e).equals("unknown_lease")) {
        held.remove(lease.id()); // it has expired: the request goes on without it
      }
      next = lease.ttl().dividedBy(4);
      next = next.compareTo(RENEW_PAUSE) < 0 ? next : RENEW_PAUSE;
    } catch (InterruptedException e) {
      return; // the client is closed
    }
    Deadline renewal = Deadline.after(next);
    held.computeIfPresent(lease.id(), (id, entry) -> new Held(lease, renewal));
  }

  /** Reports the clusters that had so many errors since their last report. */
  private void report(Deadline deadline, int errors) throws InterruptedException {
    boolean reachable = true;
    for (Cluster cluster : clusters) {
      if (errors > 0 && cluster.counts().errors() < errors) {
        continue;
      }
      Counts.Interval counted = cluster.counts().take();
      List<Counts.Taken> endpoints = counted.endpoints();
      for (int at = 0; at < endpoints.size(); at += REPORT_ENDPOINTS) {
        List<Counts.Taken> part =
            endpoints.subList(at, Math.min(at + REPORT_ENDPOINTS, endpoints.size()));
        try {
          if (reachable) {
            call("/v1/reports", json(cluster.name(), counted.length(), part), deadline);
            continue;
          }
        } catch (IOException e) {
          reachable = e instanceof LbdException;
        }
        if (!closed) {
          cluster.counts().giveBack(counted.since(), part);
        }
      }
    }
  }

  private String json(String cluster, Duration length, List<Counts.Taken> part) {
    Duration valid = length.compareTo(MIN_INTERVAL) < 0 ? MIN_INTERVAL : length;
    valid = valid.compareTo(MAX_INTERVAL) > 0 ? MAX_INTERVAL : valid;
    String endpoints = part.stream().map(Counts.Taken::json).collect(Collectors.joining(","));
    return json(Map.of(cluster, endpoints), "\"interval\":\"" + Api.duration(valid) + "\",");
  }

  /** Returns a report of endpoints by their clusters, with more fields. */
  private String json(Map<String, String> endpoints, String more) {
    return endpoints.entrySet().stream()
        .map(
            e ->
                "{\"cluster\":" + Json.quote(e.getKey()) + ",\"endpoints\":[" + e.getValue() + "]}")
        .collect(
            Collectors.joining(
                ",",
                "{\"reporter\":" + Json.quote(reporter) + "," + more + "\"clusters\":[",
                "]}"));
  }

  private static String json(List<End> ends) {
    return ends.stream()
        .map(end -> "{\"id\":" + Json.quote(end.id) + ",\"outcome\":\"" + end.outcome + "\"}")
        .collect(Collectors.joining(",", "{\"leases\":[", "]}"));
  }

  private static String codeOf(IOException error) {
    return error instanceof LbdException rejection ? rejection.code() : "";
  }

  private void call(String target, String body, Deadline deadline)
      throws IOException, InterruptedException {
    Deadline request = deadline == null ? Deadline.NEVER : deadline;
    api.call(null, "", "POST", target, body, Api.CALL_TIMEOUT, request);
  }
}
