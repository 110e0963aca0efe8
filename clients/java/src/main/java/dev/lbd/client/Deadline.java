package dev.lbd.client;

import java.time.Duration;

/** A point in time until which a request, with all of its tries, has to end. */
public final class Deadline {
  /** The deadline that never passes. */
  public static final Deadline NEVER = new Deadline(0, false);

  private static final long MAX_NANOS = Duration.ofDays(36500).toNanos();

  private final long at; // in the time of System.nanoTime
  private final boolean set;

  private Deadline(long at, boolean set) {
    this.at = at;
    this.set = set;
  }

  /**
   * Returns the deadline in so much time from now.
   *
   * @param timeout the time; null is {@link #NEVER}
   * @return the deadline
   */
  public static Deadline after(Duration timeout) {
    if (timeout == null) {
      return NEVER;
    }
    long nanos = timeout.compareTo(Duration.ofNanos(MAX_NANOS)) > 0 ? MAX_NANOS : timeout.toNanos();
    return new Deadline(System.nanoTime() + nanos, true);
  }

  /**
   * Returns whether there is a deadline at all.
   *
   * @return false for {@link #NEVER}
   */
  public boolean isSet() {
    return set;
  }

  /**
   * Returns whether the deadline has passed.
   *
   * @return true if no time is left
   */
  public boolean passed() {
    return set && at - System.nanoTime() <= 0;
  }

  /**
   * Returns the time that is left, but not more than a limit.
   *
   * @param limit the limit
   * @return the time, not below zero
   */
  public Duration atMost(Duration limit) {
    if (!set) {
      return limit;
    }
    long left = Math.max(0, at - System.nanoTime());
    return limit.compareTo(Duration.ofNanos(left)) < 0 ? limit : Duration.ofNanos(left);
  }

  /**
   * Returns the time that is left.
   *
   * @return the time, not below zero; about 100 years for {@link #NEVER}
   */
  public Duration left() {
    return atMost(Duration.ofNanos(MAX_NANOS));
  }
}
