package dev.lbd.client;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;

/**
 * How the requests to the endpoints of one cluster ended, since the last report. Safe for threads.
 */
final class Counts {
  /** Age at which counts that could not be sent are forgotten. */
  static final Duration MAX_AGE = Duration.ofSeconds(60);

  private final LongSupplier clock;
  private final Map<String, Endpoint> endpoints = new ConcurrentHashMap<>();
  private long since;

  /** Clock returns nanoseconds. */
  Counts(LongSupplier clock) {
    this.clock = clock;
    this.since = clock.getAsLong();
  }

  /** What was counted at one endpoint. Times are in nanoseconds. */
  record Taken(
      String address, long requests, long errors, long cancelled, long inFlight, long latency) {
    String json() {
      return "{\"address\":"
          + Json.quote(address)
          + ",\"requests\":"
          + requests
          + ",\"errors\":"
          + errors
          + ",\"cancelled\":"
          + cancelled
          + ",\"in_flight_seconds\":"
          + seconds(inFlight)
          + ",\"latency_seconds\":"
          + seconds(latency)
          + "}";
    }

    private static String seconds(long nanos) {
      return BigDecimal.valueOf(nanos, 9).toPlainString();
    }
  }

  /**
   * The counts of an interval.
   *
   * @param since begin of the interval, in the time of the clock
   * @param length length of the interval
   */
  record Interval(long since, Duration length, List<Taken> endpoints) {}

  /** Counts a request as in flight, and returns what counts its end. */
  Flight begin(String address) {
    while (true) {
      Endpoint endpoint = endpoints.computeIfAbsent(address, key -> new Endpoint());
      if (endpoint.begin()) {
        return new Flight(endpoint);
      }
    }
  }

  /** Returns how many requests ended with an error since the counts were taken last. */
  long errors() {
    return endpoints.values().stream().mapToLong(Endpoint::errors).sum();
  }

  /** Returns the counts since they were taken last. */
  synchronized Interval take() {
    long now = clock.getAsLong();
    long begin = since;
    since = now;
    List<Taken> taken = new ArrayList<>();
    endpoints.forEach((address, endpoint) -> endpoint.take(address, taken));
    return new Interval(begin, Duration.ofNanos(now - begin), taken);
  }

  /** Adds counts that could not be sent to the next report, unless they are too old. */
  synchronized void giveBack(long begin, List<Taken> taken) {
    if (clock.getAsLong() - begin > MAX_AGE.toNanos()) {
      return;
    }
    since = begin - since < 0 ? begin : since;
    for (Taken part : taken) {
      while (!endpoints.computeIfAbsent(part.address, key -> new Endpoint()).add(part)) {
        Thread.onSpinWait();
      }
    }
  }

  /** A request in flight. */
  final class Flight {
    private final Endpoint endpoint;
    private final long begin = clock.getAsLong();

    private Flight(Endpoint endpoint) {
      this.endpoint = endpoint;
    }

    /** Counts the outcome; the request stays in flight until end. */
    void answered(Outcome outcome) {
      endpoint.answered(outcome, clock.getAsLong() - begin);
    }

    void end() {
      endpoint.end();
    }
  }

  /** One endpoint. It is removed when a report finds it without requests. */
  private final class Endpoint {
    private boolean removed;
    private int inFlight;
    private long changed = clock.getAsLong();
    private long requests;
    private long errors;
    private long cancelled;
    private long inFlightNanos;
    private long latencyNanos;

    private void advance() {
      long now = clock.getAsLong();
      inFlightNanos += inFlight * Math.max(0, now - changed);
      changed = now;
    }

    synchronized boolean begin() {
      if (removed) {
        return false;
      }
      advance();
      inFlight++;
      return true;
    }

    synchronized void answered(Outcome outcome, long latency) {
      requests++;
      latencyNanos += latency;
      if (outcome == Outcome.ERROR) {
        errors++;
      } else if (outcome == Outcome.CANCELLED) {
        cancelled++;
      }
    }

    synchronized void end() {
      advance();
      inFlight--;
    }

    synchronized long errors() {
      return errors;
    }

    synchronized void take(String address, List<Taken> taken) {
      advance();
      if (requests > 0 || inFlightNanos > 0) {
        taken.add(new Taken(address, requests, errors, cancelled, inFlightNanos, latencyNanos));
      } else if (inFlight == 0) {
        removed = true;
        endpoints.remove(address, this);
      }
      requests = errors = cancelled = inFlightNanos = latencyNanos = 0;
    }

    synchronized boolean add(Taken part) {
      if (removed) {
        return false;
      }
      requests += part.requests;
      errors += part.errors;
      cancelled += part.cancelled;
      inFlightNanos += part.inFlight;
      latencyNanos += part.latency;
      return true;
    }
  }
}
