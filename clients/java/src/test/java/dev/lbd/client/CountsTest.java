package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class CountsTest {
  private static final long SECOND = 1_000_000_000;

  private long now = 1000 * SECOND;
  private final Counts counts = new Counts(() -> now);

  @Test
  void countsTheTimeInFlightWithinTheInterval() {
    Counts.Flight flight = counts.begin("a:1");
    now += 2 * SECOND;
    assertEquals(
        new Counts.Interval(
            1000 * SECOND, Duration.ofSeconds(2), List.of(taken(0, 0, 0, 2 * SECOND, 0))),
        counts.take());
    now += SECOND;
    flight.answered(Outcome.ERROR);
    now += SECOND;
    flight.end();
    now += 5 * SECOND;
    Counts.Interval interval = counts.take();
    assertEquals(List.of(taken(1, 1, 0, 2 * SECOND, 3 * SECOND)), interval.endpoints());
    assertEquals(Duration.ofSeconds(7), interval.length());
    assertEquals(List.of(), counts.take().endpoints());
  }

  @Test
  void givesBackWhatWasNotSent() {
    count(Outcome.CANCELLED);
    now += 5 * SECOND;
    Counts.Interval interval = counts.take();
    count(Outcome.SUCCESS);
    counts.giveBack(interval.since(), interval.endpoints());
    now += 5 * SECOND;
    assertEquals(
        new Counts.Interval(1000 * SECOND, Duration.ofSeconds(10), List.of(taken(2, 0, 1, 0, 0))),
        counts.take());
  }

  @Test
  void forgetsWhatIsTooOld() {
    count(Outcome.SUCCESS);
    Counts.Interval interval = counts.take();
    now += Counts.MAX_AGE.toNanos() + SECOND;
    counts.giveBack(interval.since(), interval.endpoints());
    assertEquals(List.of(), counts.take().endpoints());
  }

  @Test
  void isTheJsonOfAReport() {
    assertEquals(
        "{\"address\":\"a:1\",\"requests\":3,\"errors\":2,\"cancelled\":1,"
            + "\"in_flight_seconds\":1.500000000,\"latency_seconds\":0.000000001}",
        taken(3, 2, 1, 3 * SECOND / 2, 1).json());
  }

  private void count(Outcome outcome) {
    Counts.Flight flight = counts.begin("a:1");
    flight.answered(outcome);
    flight.end();
  }

  private static Counts.Taken taken(
      long n, long errors, long cancelled, long flight, long latency) {
    return new Counts.Taken("a:1", n, errors, cancelled, flight, latency);
  }

  @Test
  void permitsRetriesUntilHalfOfTheTokensAreLeft() {
    Budget budget = new Budget(10);
    for (int i = 0; i < 6; i++) {
      assertEquals(i < 4, budget.failed(), "failure " + i);
    }
    for (int i = 0; i < 21; i++) {
      budget.succeeded();
    }
    assertTrue(budget.failed() || budget.failed());
    for (int i = 0; i < 1000; i++) {
      budget.succeeded();
    }
    for (int i = 0; i < 5; i++) {
      assertEquals(i < 4, budget.failed(), "never more than all tokens: failure " + i);
    }
    assertFalse(new Budget(0).failed());
  }

  @Test
  void permitsMoreRetriesToABusyProcess() {
    Budget budget = new Budget(10);
    for (int picks : List.of(20, 500, 1000, 300, 100)) {
      budget.fit(picks);
      int permitted = 0;
      while (budget.failed()) {
        permitted++;
      }
      assertEquals(Math.max(100, picks) / 20 - 1, permitted, picks + " picks");
      for (int i = 0; i < 100 * picks; i++) {
        budget.succeeded();
      }
    }
  }
}
