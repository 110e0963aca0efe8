package dev.lbd.client;

import java.time.Duration;
import java.util.Arrays;

/**
 * How long the last connects of a cluster took, at most. HTTP libraries do not say it, but an
 * answer takes as many round trips as a connect, or more. So the times of answers are added: that
 * of a request whose connects had too little time, and then all, as long as they matter. Safe for
 * threads.
 */
final class Connects {
  /** The time that a connect has at least. */
  static final Duration MIN_LIMIT = Duration.ofMillis(250);

  private final long[] took = new long[16]; // guarded by this
  private int count; // guarded by this
  private volatile Duration limit = MIN_LIMIT;

  synchronized void add(long nanos) {
    took[count++ % took.length] = nanos;
    long longest = 3 * Arrays.stream(took).max().getAsLong();
    limit = Duration.ofNanos(Math.max(longest, MIN_LIMIT.toNanos()));
  }

  /** Returns the time that a connect has while there are other endpoints. */
  Duration limit() {
    return limit;
  }

  /** Returns whether the limit is more than that of a cluster that is near. */
  boolean areLong() {
    return limit != MIN_LIMIT && limit.compareTo(MIN_LIMIT) > 0;
  }
}
