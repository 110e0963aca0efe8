package dev.lbd.client;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;

/** The addresses of a cluster to which tries have failed. Safe for threads. */
final class Asides {
  private static final long FIRST = Duration.ofSeconds(1).toNanos();
  private static final long LONGEST = Duration.ofSeconds(10).toNanos();
  private static final long FORGET = Duration.ofMinutes(5).toNanos(); // in modes without a batch
  private static final int UNKNOWN_ENDS = 3; // in a row set an address aside

  private final LongSupplier clock;
  private final Map<String, Aside> addresses = new HashMap<>(); // guarded by this
  private volatile boolean known; // whether there are addresses

  /** What is remembered of an address. It is set aside if pause is not 0. */
  private static final class Aside {
    private int unknown; // ends in a row without an answer
    private long pause; // for which it is set aside
    private long until; // when the next request is a trial
    private boolean trial; // it is under way

    Aside(long now) {
      this.until = now;
    }
  }

  /** Clock returns nanoseconds. */
  Asides(LongSupplier clock) {
    this.clock = clock;
  }

  /** Returns whether requests avoid an address. After its time, it permits one: the trial. */
  boolean avoids(String address) {
    if (!known) {
      return false;
    }
    synchronized (this) {
      Aside aside = addresses.get(address);
      if (aside == null || aside.pause == 0) {
        return false;
      }
      long now = clock.getAsLong();
      if (now - aside.until < 0) {
        return true;
      }
      aside.trial = true;
      aside.until = now + LONGEST; // the next one if this never ends
      return false;
    }
  }

  /** Returns the addresses that requests avoid. {@link #avoids} begins the trial of another one. */
  List<String> avoided() {
    if (!known) {
      return List.of();
    }
    synchronized (this) {
      long now = clock.getAsLong();
      addresses.values().removeIf(aside -> now - aside.until > FORGET);
      known = !addresses.isEmpty();
      return addresses.entrySet().stream()
          .filter(entry -> entry.getValue().pause > 0 && now - entry.getValue().until < 0)
          .map(Map.Entry::getKey)
          .sorted()
          .toList();
    }
  }

  /**
   * Remembers a try that was not sent, or that was sent without an answer.
   *
   * @param most how many addresses may be set aside
   */
  synchronized void failed(String address, boolean sent, int most) {
    long now = clock.getAsLong();
    Aside aside = addresses.computeIfAbsent(address, key -> new Aside(now));
    known = true;
    if (sent && ++aside.unknown < UNKNOWN_ENDS) {
      if (aside.trial) { // it was connected
        aside.pause = 0;
        aside.trial = false;
      }
      return;
    }
    if (aside.pause == 0 && addresses.values().stream().filter(a -> a.pause > 0).count() < most) {
      aside.pause = FIRST;
    } else if (aside.trial) {
      aside.pause = Math.min(2 * aside.pause, LONGEST);
    } else {
      return; // a request that began before, or too many addresses
    }
    aside.trial = false;
    aside.until = now + (long) (aside.pause * ThreadLocalRandom.current().nextDouble(0.8, 1.2));
  }

  /** Forgets an address. */
  void answered(String address) {
    if (known) {
      synchronized (this) {
        addresses.remove(address);
        known = !addresses.isEmpty();
      }
    }
  }

  /** Forgets the other addresses. */
  void keep(Set<String> others) {
    if (known) {
      synchronized (this) {
        addresses.keySet().retainAll(others);
        known = !addresses.isEmpty();
      }
    }
  }
}
