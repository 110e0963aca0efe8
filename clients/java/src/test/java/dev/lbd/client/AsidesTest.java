package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

class AsidesTest {
  private long now = 1000;
  private final Asides asides = new Asides(() -> now);

  private void pass(double seconds) {
    now += (long) (seconds * 1e9);
  }

  private Set<String> avoided() {
    return new TreeSet<>(asides.avoided());
  }

  @Test
  void permitsATrialAfterATimeThatGrows() {
    asides.failed("a", false, 2);
    asides.failed("a", false, 2); // a request that began before
    assertFalse(asides.avoids("b"));
    for (double pause : new double[] {1, 2, 4, 8, 10, 10}) {
      pass(0.79 * pause);
      assertTrue(asides.avoids("a"), "before " + pause + " s");
      pass(0.42 * pause);
      assertFalse(asides.avoids("a"), "the trial after " + pause + " s");
      assertTrue(asides.avoids("a"), "others while there is a trial");
      asides.failed("a", false, 2);
    }
    pass(12.1);
    assertFalse(asides.avoids("a"));
    asides.failed("a", true, 2); // it was connected
    assertFalse(asides.avoids("a"));
  }

  @Test
  void permitsAnotherTrialIfOneNeverEnds() {
    asides.failed("a", false, 1);
    pass(1.3);
    assertFalse(asides.avoids("a"));
    pass(9.9);
    assertTrue(asides.avoids("a"));
    pass(0.2);
    assertFalse(asides.avoids("a"));
  }

  @Test
  void takesThreeEndsWithoutAnAnswer() {
    for (int i = 0; i < 2; i++) {
      asides.failed("a", true, 2);
      asides.failed("a", true, 2);
      assertFalse(asides.avoids("a"));
      asides.answered("a");
    }
    for (int i = 0; i < 3; i++) {
      asides.failed("a", true, 2);
    }
    assertTrue(asides.avoids("a"));
  }

  @Test
  void setsNoMoreAsideThanPermittedAndForgets() {
    for (String address : new String[] {"a", "b", "c"}) {
      asides.failed(address, false, 2);
    }
    assertFalse(asides.avoids("c"));
    assertEquals(Set.of("a", "b"), avoided());
    asides.keep(Set.of("b", "c"));
    assertEquals(Set.of("b"), avoided());
    pass(1.3);
    assertEquals(Set.of(), avoided());
    assertFalse(asides.avoids("b"), "the trial");
    assertTrue(asides.avoids("b"));
    pass(320);
    assertEquals(Set.of(), avoided());
    assertFalse(asides.avoids("b"), "it is forgotten");
    assertFalse(asides.avoids("b"), "so there is no trial");
  }

  @Test
  void connectsHaveThreeTimesTheLongest() {
    Connects connects = new Connects();
    connects.add(Duration.ofMillis(10).toNanos());
    assertEquals(Duration.ofMillis(250), connects.limit());
    connects.add(Duration.ofMillis(400).toNanos());
    for (int i = 0; i < 16; i++) {
      assertEquals(Duration.ofMillis(1200), connects.limit());
      assertTrue(connects.areLong());
      connects.add(1);
    }
    assertEquals(Duration.ofMillis(250), connects.limit());
    assertFalse(connects.areLong());
  }
}
