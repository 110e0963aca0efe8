package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The batches of one cluster or target, and the thread that keeps them up to date. Safe for
 * threads.
 */
final class Cluster {
  /** How many addresses a request tries, and lbd excludes, at most. */
  static final int MAX_TRIED = 100;

  private static final Duration BATCH_TIME = Duration.ofSeconds(2); // it has the picks for that
  private static final int BATCH_MIN = 20;
  private static final Duration MAX_WAIT = Duration.ofSeconds(30);
  private static final Duration REFUSED_AGE = Duration.ofSeconds(1);
  private static final Duration BATCH_WAIT = Duration.ofSeconds(1);
  private static final Duration MIN_PAUSE = Duration.ofMillis(100);
  private static final Duration MAX_RETRY_AFTER = Duration.ofSeconds(60);
  private static final long IDLE_NANOS = Duration.ofMinutes(5).toNanos();
  private static final ExecutorService CALLS =
      Executors.newCachedThreadPool(task -> Background.thread("lbd asks", task));
  private static final String LATE = "lbd did not answer in time";
  private static final double BACKOFF_FIRST = 0.1;
  private static final double BACKOFF_MAX = 5;

  // Fixed.
  private final String name; // of a cluster or target
  private final LbdClient client;
  private final Counts counts = new Counts(System::nanoTime);
  private final Budget budget;
  private final Asides asides = new Asides(System::nanoTime);
  private final Connects connects = new Connects();
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Api.Slot slot = new Api.Slot();

  private final Asked asked = new Asked();
  private final Map<String, Future<Batch>> calls = new ConcurrentHashMap<>(); // by query

  private volatile Batch batch;
  private volatile LbdException error; // of the last call to lbd, or null
  private volatile boolean used;
  private volatile long picked = Long.MIN_VALUE; // in the time of System.nanoTime
  private volatile boolean stopped;

  // Guarded by lock.
  private Thread thread;
  private boolean tried;
  private Deadline refused = Deadline.after(Duration.ZERO); // error is the answer until then

  Cluster(String name, LbdClient client) {
    this.name = name;
    this.client = client;
    this.budget = new Budget(client.settings().maxTokens());
  }

  String name() {
    return name;
  }

  Counts counts() {
    return counts;
  }

  Budget budget() {
    return budget;
  }

  Asides asides() {
    return asides;
  }

  Connects connects() {
    return connects;
  }

  /** Remembers that lbd has given an endpoint, in the modes without a batch. */
  void pick() {
    picked = System.nanoTime();
  }

  /** Returns when that was last; Long.MIN_VALUE for never. */
  long picked() {
    return picked;
  }

  /** Remembers a try that was not sent, or that was sent without an answer. */
  void failed(String address, boolean sent) {
    Batch current = batch;
    boolean all = current != null && current.query().isEmpty(); // it has all addresses
    asides.failed(address, sent, all ? current.addresses().size() / 2 : MAX_TRIED);
  }

  /** Returns whether take answers without waiting for lbd. */
  boolean ready(String query) {
    return known(query) != null;
  }

  /**
   * Returns the next element of the batch for a query. Waits for lbd until the deadline, if it is
   * the first one, or was not asked before.
   *
   * @param any whether it may be one for another query if lbd is unreachable
   */
  Batch.Element take(String query, boolean any, Deadline deadline)
      throws LbdException, InterruptedException {
    if (!used) {
      used = true;
    }
    Batch known = known(query);
    return (known == null ? await(query, any, deadline) : known).take(asides);
  }

  /** Returns the batch for a query if it can be used, or null. */
  private Batch known(String query) {
    Batch current = batch;
    if (query.isEmpty() && current != null && current.query().isEmpty()) {
      return usable(current) ? current : null;
    }
    Batch kept = asked.get(query); // of the last generation, which current may not be
    LbdException last = error;
    boolean fresh = kept != null && (!kept.end().passed() || (last != null && !isStale(kept)));
    return fresh && (usable(current) || isOfOther(last)) ? kept : null;
  }

  /** Returns whether an error may say nothing of a request: it is that of another one. */
  private boolean isOfOther(LbdException error) {
    String code = error == null ? "" : error.code();
    return code.equals("no_route") || (code.equals("invalid_argument") && Host.isTarget(name));
  }

  /** Returns the last batch, or null. */
  Batch batch() {
    return batch;
  }

  /** Waits for the batch after one, and returns it; null if there is none before the deadline. */
  Batch next(Batch before, Deadline deadline) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      while (batch == before && !stopped && !deadline.passed()) {
        changed.awaitNanos(deadline.left().toNanos());
      }
      return batch == before ? null : batch;
    } finally {
      lock.unlock();
    }
  }

  private boolean usable(Batch batch) {
    return batch != null && (!isStale(batch) || error == null);
  }

  private boolean isStale(Batch batch) {
    return batch.age() >= client.settings().staleFor().toNanos();
  }

  /**
   * Starts the thread if there is none, waits for a batch, or for the first try to get one, and
   * returns that for a query.
   */
  private Batch await(String query, boolean any, Deadline deadline)
      throws LbdException, InterruptedException {
    Batch last = null;
    try {
      last = awaitAny(deadline);
    } catch (UnavailableException e) {
      if (!isOfOther(e)) {
        throw e;
      }
    }
    Batch known = known(query);
    return known == null ? ask(query, any ? last : null, deadline) : known;
  }

  /** Asks lbd for a batch for a query. Without an answer, the last one has to do, if any. */
  private Batch ask(String query, Batch last, Deadline deadline)
      throws LbdException, InterruptedException {
    try {
      return calls
          .computeIfAbsent(query, this::call)
          .get(deadline.left().toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw new UnavailableException(name, LATE, null);
    } catch (ExecutionException e) {
      if (e.getCause() instanceof LbdException rejection) {
        throw rejection.copy();
      }
      LbdException reason = unreachable(e.getCause());
      error = reason;
      Batch known = known(query);
      if (known != null) {
        return known;
      }
      if (last == null || last.generation() == Batch.NO_GENERATION || Host.isTarget(name)) {
        throw reason;
      }
      return last; // better another endpoint than none
    }
  }

  /** Begins a call for all requests that need the batch for a query at the same time. */
  private Future<Batch> call(String query) {
    return CALLS.submit(
        () -> {
          try {
            Batch known = known(query); // of a call that has just ended
            Batch fresh = known == null ? fetch(null, query, BATCH_MIN) : known;
            asked.put(fresh, false);
            return fresh;
          } finally {
            calls.remove(query);
          }
        });
  }

  private LbdException unreachable(Throwable cause) {
    return new UnavailableException(name, "lbd is unreachable: " + cause.getMessage(), cause);
  }

  private Batch awaitAny(Deadline deadline) throws LbdException, InterruptedException {
    LbdException reason;
    boolean stale;
    lock.lockInterruptibly();
    try {
      if (thread == null && !stopped && refused.passed()) {
        tried = false;
        Thread follower = Background.thread("lbd " + name, this::run);
        follower.start();
        thread = follower;
      }
      while (!usable(batch) && !tried && !stopped && !deadline.passed()) {
        changed.awaitNanos(deadline.left().toNanos());
      }
      if (usable(batch) && !stopped) {
        return batch;
      }
      LbdException last = stopped ? null : error;
      stale = batch != null && last != null && last.code().isEmpty();
      reason =
          last != null
              ? last.copy()
              : new UnavailableException(name, stopped ? "the client is closed" : LATE, null);
    } finally {
      lock.unlock();
    }
    if (stale) {
      client.hooks().stale(reason);
    }
    throw reason;
  }

  /** Ends the thread, without waiting for it. */
  void stop() {
    lock.lock();
    try {
      stopped = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    slot.close();
  }

  private void run() {
    try {
      keepUpToDate();
    } finally {
      lock.lock();
      try {
        if (thread == Thread.currentThread()) {
          thread = null; // the next request without a batch starts another one
        }
      } finally {
        lock.unlock();
      }
    }
  }

  private void keepUpToDate() {
    double backoff = BACKOFF_FIRST;
    long usedAt = System.nanoTime();
    int n = Batch.FIRST_PICKS;
    int most = Batch.MAX_PICKS;
    Deadline soon = Deadline.after(Duration.ZERO);
    while (!stopped) {
      try {
        // Replicas behind one address do not count alike: each call may find another generation.
        pause(soon.left().toNanos());
        String query = asked.last();
        Batch fresh = fetch(slot, query, query.isEmpty() ? n : BATCH_MIN);
        soon = Deadline.after(MIN_PAUSE);
        publish(fresh, null);
        follow(fresh);
        if (fresh.age() >= MIN_PAUSE.toNanos()) {
          n = next(fresh, most);
          budget.fit(n);
        }
        backoff = BACKOFF_FIRST;
      } catch (Throwable e) { // the thread has to survive whatever comes
        LbdException failure = e instanceof LbdException rejection ? rejection : unreachable(e);
        if (n > Batch.FIRST_PICKS && failure.code().equals("invalid_argument")) {
          n = Batch.FIRST_PICKS; // the quota of the caller does not permit more
          most = Batch.FIRST_PICKS;
          continue;
        }
        publish(null, failure);
        if (batch == null && failure.isFinal()) { // names are often input
          end(REFUSED_AGE);
          return;
        }
        long pause = (long) (backoff * 1e9 * ThreadLocalRandom.current().nextDouble(0.8, 1.2));
        Duration asked = failure.retryAfter();
        asked = asked.compareTo(MAX_RETRY_AFTER) > 0 ? MAX_RETRY_AFTER : asked;
        pause(Math.max(pause, asked.toNanos()));
        backoff = Math.min(2 * backoff, BACKOFF_MAX);
      }
      if (used) {
        used = false;
        usedAt = System.nanoTime();
      }
      if (System.nanoTime() - usedAt > IDLE_NANOS || !client.knows(this)) {
        end(Duration.ZERO);
        return;
      }
    }
  }

  /** Returns how many picks the batch after this one has. */
  private static int next(Batch batch, int most) {
    double n = (double) batch.taken() * BATCH_TIME.toNanos() / batch.age();
    return (int) Math.min(Math.max(n, BATCH_MIN), most);
  }

  /** Ends the thread. The error is the answer to requests for some time. */
  private void end(Duration refusal) {
    lock.lock();
    try {
      thread = null;
      batch = null;
      asked.clear();
      refused = Deadline.after(refusal);
      slot.drop();
    } finally {
      lock.unlock();
    }
  }

  private void publish(Batch fresh, LbdException failure) {
    if (fresh != null) {
      asked.put(fresh, true);
      if (fresh.generation() != Batch.NO_GENERATION && fresh.query().isEmpty()) {
        asides.keep(fresh.addresses());
      }
    }
    lock.lock();
    try {
      batch = fresh == null ? batch : fresh;
      error = failure;
      tried = true;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void pause(long nanos) {
    lock.lock();
    try {
      Deadline end = Deadline.after(Duration.ofNanos(nanos));
      while (!stopped && !end.passed()) {
        changed.await(end.left().toNanos(), TimeUnit.NANOSECONDS);
      }
    } catch (InterruptedException e) {
      // nobody may interrupt this thread: go on
    } finally {
      lock.unlock();
    }
  }

  private Batch fetch(Api.Slot slot, String query, int n) throws IOException, InterruptedException {
    String target = "/v1/pick?" + Host.parameter(name) + "&n=" + n + "&reports=true";
    target += "&wait=" + Api.duration(BATCH_WAIT) + query;
    // A change makes all clients get a batch at the same time: their next ones are apart.
    double part = ThreadLocalRandom.current().nextDouble(0.8, 1);
    Duration maxAge = client.settings().maxAge();
    Duration lasts = Duration.ofNanos((long) (maxAge.toNanos() * part));
    try {
      Duration timeout = BATCH_WAIT.plusSeconds(1);
      var answer = client.api().call(slot, name, "GET", target, null, timeout, Deadline.NEVER);
      return Batch.ofAnswer(name, query, lasts, answer, client::counts);
    } catch (DroppedException | CircuitBrokenException e) {
      return Batch.ofRefusal(query, Deadline.after(maxAge).atMost(REFUSED_AGE), e);
    } catch (IllegalArgumentException e) {
      throw client.api().unreachable("GET", target, e);
    }
  }

  /** Returns when it is time for a new batch. */
  private void follow(Batch current) throws IOException, InterruptedException {
    Deadline end = current.end();
    if (current.generation() == Batch.NO_GENERATION) {
      pause(end.left().toNanos());
      return;
    }
    Batch.Element any = current.draw(address -> true);
    String target = "/v1/clusters/" + segment(any == null ? name : any.choice().cluster());
    target += "?endpoints=false&index=" + current.generation();
    target += Host.isTarget(name) ? "&" + Host.parameter(name) : "";
    while (!stopped && !end.passed()) {
      Deadline pause = Deadline.after(MIN_PAUSE);
      Duration wait = end.atMost(MAX_WAIT);
      String call = target + "&wait=" + Api.duration(wait);
      Duration timeout = wait.plusSeconds(1);
      var answer = client.api().call(slot, name, "GET", call, null, timeout, Deadline.NEVER);
      if (!Long.valueOf(current.generation()).equals(answer.get("generation"))) {
        return;
      }
      pause(end.atMost(pause.left()).toNanos());
    }
  }

  /** Returns a name in a path, where v1/clusters/watch is the stream of all clusters. */
  private static String segment(String name) {
    return name.equals("watch") ? "%77atch" : Api.encode(name);
  }
}
