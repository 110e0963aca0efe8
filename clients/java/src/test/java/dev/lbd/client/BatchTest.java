package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class BatchTest {
  private static Batch batch(String answer) {
    return batch("orders", "", answer);
  }

  static Batch batch(String name, String query, String answer) {
    Map<String, Object> object = Json.object(answer.getBytes(StandardCharsets.UTF_8));
    return Batch.ofAnswer(
        name, query, Duration.ofSeconds(10), object, any -> new Counts(System::nanoTime));
  }

  private static final String ANSWER =
      "{\"generation\":7,\"picks\":[{\"address\":\"a:1\"},{\"address\":\"a:1\"},{\"address\":\"b:1\"}],"
          + "\"dropped\":{\"throttle\":2},\"circuit_broken\":1,\"new\":{}}";

  private static final Asides NONE = new Asides(System::nanoTime);

  @Test
  void takesEachElementInTurn() {
    Batch batch = batch(ANSWER);
    assertEquals(7, batch.generation());
    for (int round = 0; round < 3; round++) {
      Map<String, Integer> taken = new TreeMap<>();
      for (int i = 0; i < 6; i++) {
        Batch.Element element = batch.take(NONE);
        String name =
            element.address() != null
                ? element.address()
                : element.refusal().getClass().getSimpleName();
        taken.merge(name, 1, Integer::sum);
      }
      assertEquals(
          Map.of("a:1", 2, "b:1", 1, "DroppedException", 2, "CircuitBrokenException", 1), taken);
    }
  }

  @Test
  void takesAnotherAddress() {
    Batch batch = batch(ANSWER);
    Map<String, Integer> drawn = new TreeMap<>();
    for (int i = 0; i < 600; i++) {
      assertEquals("b:1", batch.draw(address -> !address.equals("a:1")).address());
      drawn.merge(batch.draw(address -> true).address(), 1, Integer::sum);
    }
    assertTrue(drawn.get("a:1") > 1.4 * drawn.get("b:1"), drawn.toString());
    assertNull(batch.draw(address -> false));
    assertNull(batch("{\"generation\":1,\"picks\":[],\"circuit_broken\":1}").draw(address -> true));
  }

  @Test
  void keepsTheSharesOfTheAddressesThatAreNotSetAside() {
    String picks =
        "1222333333"
            .chars()
            .mapToObj(digit -> "{\"address\":\"" + (char) digit + ":1\"}")
            .collect(Collectors.joining(","));
    Batch batch = batch("{\"generation\":1,\"picks\":[" + picks + "]}");
    Asides asides = new Asides(System::nanoTime);
    asides.failed("3:1", false, 1);
    Map<String, Integer> taken = new TreeMap<>();
    for (int i = 0; i < 400; i++) {
      taken.merge(batch.take(asides).address(), 1, Integer::sum);
    }
    assertEquals(Map.of("1:1", 100, "2:1", 300), taken);
    asides.failed("1:1", false, 3);
    asides.failed("2:1", false, 3);
    assertTrue(batch.addresses().contains(batch.take(asides).address()), "all are set aside");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{}",
        "{\"generation\":1,\"picks\":[]}",
        "{\"generation\":1,\"picks\":[{}]}",
        "{\"generation\":1,\"picks\":[null]}",
        "{\"generation\":1,\"picks\":[{\"address\":7}]}",
        "{\"generation\":1,\"picks\":[{\"address\":\"\"}]}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a\"}]}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a@b:1\"}]}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a:1/x\"}]}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a:1\\r\\n\"}]}",
        "{\"generation\":null,\"picks\":[{\"address\":\"a:1\"}]}",
        "{\"generation\":\"1\",\"picks\":[{\"address\":\"a:1\"}]}",
        "{\"generation\":1,\"picks\":null}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a:1\"}],\"dropped\":{\"x\":\"y\"}}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a:1\"}],\"dropped\":{\"x\":-1}}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a:1\"}],\"circuit_broken\":1e9}",
        "{\"generation\":1,\"picks\":[{\"address\":\"a:1\"}],\"circuit_broken\":1000000000}",
        "{\"generation\":1,\"picks\":[],\"dropped\":{\"x\":600,\"y\":600}}"
      })
  void rejectsWhatIsNotABatch(String answer) {
    assertThrows(IllegalArgumentException.class, () -> batch(answer));
  }
}
