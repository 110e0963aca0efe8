package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** The batch of one cluster, and the thread that keeps it up to date. Safe for threads. */
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
  private static final double BACKOFF_FIRST = 0.1;
  private static final double BACKOFF_MAX = 5;

  // Fixed.
  private final String name;
  private final Api api;
  private final Duration maxAge;
  private final Duration staleFor;
  private final Counts counts = new Counts(System::nanoTime);
  private final Budget budget;
  private final Asides asides = new Asides(System::nanoTime);
  private final Connects connects = new Connects();
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Api.Slot slot = new Api.Slot();

  private volatile Batch batch;
  private volatile boolean used;
  private volatile boolean stopped;

  // Guarded by lock.
  private Thread thread;
  private LbdException error;
  private boolean tried;

  Cluster(String name, Api api, Duration maxAge, Duration staleFor, double maxTokens) {
    this.name = name;
    this.api = api;
    this.maxAge = maxAge;
    this.staleFor = staleFor;
    this.budget = new Budget(maxTokens);
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

  /** Remembers a try that was not sent, or that was sent without an answer. */
  void failed(String address, boolean sent) {
    Batch current = batch;
    asides.failed(address, sent, current == null ? MAX_TRIED : current.addresses().size() / 2);
  }

  /** Returns whether take answers without waiting for lbd. */
  boolean ready() {
    return usable(batch);
  }

  /** Returns the next element of the batch. Waits for the first batch until the deadline. */
  Batch.Element take(Deadline deadline) throws LbdException, InterruptedException {
    if (!used) {
      used = true;
    }
    Batch current = batch;
    return (usable(current) ? current : await(deadline)).take(asides);
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
    return batch != null && batch.age() < staleFor.toNanos();
  }

  /** Starts the thread if there is none, and waits for a batch, or for the first try to get one. */
  private Batch await(Deadline deadline) throws LbdException, InterruptedException {
    lock.lockInterruptibly();
    try {
      if (thread == null && !stopped) {
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
      if (error != null && !stopped) {
        throw error.copy();
      }
      String reason = stopped ? "the client is closed" : "lbd did not answer in time";
      throw new UnavailableException(name, reason, null);
    } finally {
      lock.unlock();
    }
  }

  /** Returns whether the thread is there: there were requests in the last minutes. */
  boolean isFollowed() {
    lock.lock();
    try {
      return thread != null;
    } finally {
      lock.unlock();
    }
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
        Batch fresh = fetch(n);
        soon = Deadline.after(MIN_PAUSE);
        publish(fresh, null);
        follow(fresh);
        if (fresh.age() >= MIN_PAUSE.toNanos()) {
          n = next(fresh, most);
          budget.fit(n);
        }
        backoff = BACKOFF_FIRST;
      } catch (Throwable e) { // the thread has to survive whatever comes
        LbdException failure =
            e instanceof LbdException rejection
                ? rejection
                : new UnavailableException(name, "lbd is unreachable: " + e.getMessage(), e);
        if (n > Batch.FIRST_PICKS && failure.code().equals("invalid_argument")) {
          n = Batch.FIRST_PICKS; // the quota of the caller does not permit more
          most = Batch.FIRST_PICKS;
          continue;
        }
        publish(null, failure);
        long pause = (long) (backoff * 1e9 * ThreadLocalRandom.current().nextDouble(0.8, 1.2));
        Duration asked = failure.retryAfter();
        asked = asked.compareTo(MAX_RETRY_AFTER) > 0 ? MAX_RETRY_AFTER : asked;
        pause(Math.max(pause, asked.toNanos()));
        backoff = Math.min(2 * backoff, BACKOFF_MAX);
      }
      if (used) {
        used = false;
        usedAt = System.nanoTime();
      } else if (System.nanoTime() - usedAt > IDLE_NANOS && forget()) {
        return;
      }
    }
  }

  /** Returns how many picks the batch after this one has. */
  private static int next(Batch batch, int most) {
    double n = (double) batch.taken() * BATCH_TIME.toNanos() / batch.age();
    return (int) Math.min(Math.max(n, BATCH_MIN), most);
  }

  /** Ends the thread of a cluster without requests, unless there was one just now. */
  private boolean forget() {
    lock.lock();
    try {
      if (used) {
        return false;
      }
      thread = null;
      batch = null;
      error = null;
      tried = false;
      slot.drop();
      return true;
    } finally {
      lock.unlock();
    }
  }

  private void publish(Batch fresh, LbdException failure) {
    if (fresh != null && fresh.generation() != Batch.NO_GENERATION) {
      asides.keep(fresh.addresses());
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

  private Batch fetch(int n) throws IOException, InterruptedException {
    String target = "/v1/pick?cluster=" + Api.encode(name) + "&n=" + n + "&reports=true";
    target += "&wait=" + Api.duration(BATCH_WAIT);
    try {
      Deadline until = Deadline.after(BATCH_WAIT.plusSeconds(1));
      return Batch.ofAnswer(name, api.call(slot, name, "GET", target, null, until));
    } catch (DroppedException | CircuitBrokenException e) {
      return Batch.ofRefusal(e);
    } catch (IllegalArgumentException e) {
      throw new UnreachableException("GET " + target, e);
    }
  }

  /** Returns when it is time for a new batch. */
  private void follow(Batch current) throws IOException, InterruptedException {
    if (current.generation() == Batch.NO_GENERATION) {
      pause(Deadline.after(maxAge).atMost(REFUSED_AGE).toNanos());
      return;
    }
    String target =
        "/v1/clusters/" + segment(name) + "?endpoints=false&index=" + current.generation();
    // A change makes all clients get a batch at the same time: their next ones are apart.
    double part = ThreadLocalRandom.current().nextDouble(0.8, 1);
    Deadline end = Deadline.after(Duration.ofNanos((long) (maxAge.toNanos() * part)));
    while (!stopped && !end.passed()) {
      Deadline pause = Deadline.after(MIN_PAUSE);
      Duration wait = end.atMost(MAX_WAIT);
      Deadline until = Deadline.after(wait.plusSeconds(1));
      var answer = api.call(slot, name, "GET", target + "&wait=" + Api.duration(wait), null, until);
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
