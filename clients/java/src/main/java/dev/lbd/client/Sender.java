package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/** The thread that sends reports, and ends and renews leases. Safe for threads. */
final class Sender {
  private static final int LEASES_AT_ONCE = 1000;
  private static final int MAX_WAITING = 100_000;
  private static final int REPORT_ENDPOINTS = 1000;
  private static final Duration RENEW_CHECK = Duration.ofMillis(200);
  private static final Duration RETRY_PAUSE = Duration.ofMillis(500);
  private static final End WAKE = new End("", Outcome.SUCCESS);
  private static final Duration MIN_INTERVAL = Duration.ofMillis(100);
  private static final Duration MAX_INTERVAL = Duration.ofMinutes(5);

  // Fixed.
  private final Api api;
  private final Collection<Cluster> clusters;
  private final String reporter;
  private final Duration interval;

  private final Map<String, Held> held = new ConcurrentHashMap<>();
  private final LinkedBlockingQueue<End> ended = new LinkedBlockingQueue<>(MAX_WAITING);
  private volatile Thread thread;
  private volatile boolean idle; // no lease is held
  private volatile boolean closed;

  private record Held(Lease lease, Deadline renewal) {}

  /** The end of a lease, or with an empty ID only a reason to wake up. */
  private record End(String id, Outcome outcome) {}

  Sender(Api api, Collection<Cluster> clusters, String reporter, Duration interval) {
    this.api = api;
    this.clusters = clusters;
    this.reporter = reporter;
    this.interval = interval;
  }

  void start() {
    if (thread == null) {
      synchronized (this) {
        if (thread == null && !closed) {
          Thread sender = Background.thread("lbd reports", this::run);
          sender.start();
          thread = sender;
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
    start();
    if (idle) {
      idle = false;
      ended.offer(WAKE);
    }
    return true;
  }

  /** Ends a lease in the background. If too many ends wait for lbd, the lease expires. */
  void end(Lease lease, Outcome outcome) {
    if (held.remove(lease.id()) != null) {
      ended.offer(new End(lease.id(), outcome));
    }
  }

  /** Ends the thread and all leases, and sends the last report. */
  void close(Deadline deadline) throws InterruptedException {
    Thread sender;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      sender = thread;
    }
    if (sender != null) {
      ended.offer(WAKE);
      sender.join(Math.max(1, deadline.left().dividedBy(2).toMillis()));
    }
    for (Held entry : held.values()) {
      end(entry.lease, Outcome.CANCELLED);
    }
    List<End> rest = takeEnded();
    while (!rest.isEmpty() && !deadline.passed() && sendEnded(rest, deadline)) {
      rest = takeEnded();
    }
    if (!deadline.passed()) {
      report(deadline);
    }
  }

  private void run() {
    Deadline nextReport = Deadline.after(interval);
    while (!closed) {
      try {
        if (nextReport.passed()) {
          nextReport = Deadline.after(interval);
          report(null);
        }
        renew();
        idle = true; // before the look at held: either this or hold sees the other
        idle = held.isEmpty();
        Duration wait = idle ? nextReport.left() : nextReport.atMost(RENEW_CHECK);
        End first = ended.poll(wait.toNanos(), TimeUnit.NANOSECONDS);
        if (first != null && !closed) {
          List<End> ends = takeEnded();
          ends.add(first);
          if (!sendEnded(ends, null)) {
            Thread.sleep(RETRY_PAUSE.toMillis());
          }
        } else if (first != null) {
          ended.offer(first);
        }
      } catch (Throwable e) { // the thread has to survive whatever comes
        LockSupport.parkNanos(RETRY_PAUSE.toNanos());
      }
    }
  }

  private List<End> takeEnded() {
    List<End> ends = new ArrayList<>();
    ended.drainTo(ends, LEASES_AT_ONCE - 1);
    return ends;
  }

  /** Ends leases. If that fails, puts them back, and returns false. */
  private boolean sendEnded(List<End> ends, Deadline deadline) throws InterruptedException {
    String leases =
        ends.stream()
            .filter(end -> !end.id.isEmpty())
            .map(
                end ->
                    "{\"id\":"
                        + Json.quote(end.id)
                        + ",\"outcome\":\""
                        + end.outcome.wire()
                        + "\"}")
            .collect(Collectors.joining(",", "{\"leases\":[", "]}"));
    try {
      if (!leases.endsWith("[]}")) {
        call("/v1/leases/done", leases, deadline);
      }
      return true;
    } catch (IOException e) {
      if (codeOf(e).equals("invalid_argument")) {
        return true; // it would be the answer to the next call, too
      }
      ends.forEach(ended::offer);
      return false;
    }
  }

  private void renew() throws InterruptedException {
    for (Held entry : held.values()) {
      Lease lease = entry.lease;
      if (!entry.renewal.passed()) {
        continue;
      }
      Duration next = lease.ttl().dividedBy(2);
      try {
        call(
            "/v1/leases/" + Api.encode(lease.id()) + "/renew?ttl=" + Api.duration(lease.ttl()),
            null,
            null);
      } catch (IOException e) {
        if (!codeOf(e).equals("unknown_lease")) {
          return; // the next look tries again
        }
        held.remove(lease.id()); // it has expired: the request goes on without it
      }
      held.replace(lease.id(), new Held(lease, Deadline.after(next)));
    }
  }

  private void report(Deadline deadline) throws InterruptedException {
    boolean reachable = true;
    for (Cluster cluster : clusters) {
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
    return part.stream()
        .map(Counts.Taken::json)
        .collect(
            Collectors.joining(
                ",",
                "{\"reporter\":"
                    + Json.quote(reporter)
                    + ",\"interval\":\""
                    + Api.duration(valid)
                    + "\",\"clusters\":[{\"cluster\":"
                    + Json.quote(cluster)
                    + ",\"endpoints\":[",
                "]}]}"));
  }

  private static String codeOf(IOException error) {
    return error instanceof LbdException rejection ? rejection.code() : "";
  }

  private void call(String target, String body, Deadline deadline)
      throws IOException, InterruptedException {
    Deadline until = deadline == null ? Deadline.after(Api.CALL_TIMEOUT) : deadline;
    api.call("", "POST", target, body, until);
  }
}
