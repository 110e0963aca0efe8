package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What requests ask, and the batches for it. */
class AskTest {
  private static final Map<String, List<String>> HEADERS =
      Map.of(
          "x-user", List.of("a&b"),
          "tenant", List.of("1", "2"),
          "Cookie", List.of("sida=1; sid=\"7 ü\"", "sid=8"));

  private static void assertAsks(String query, Host host, Ask ask) {
    Ask asks = host.ask(ask, "/a%2Fb/c", name -> HEADERS.getOrDefault(name, List.of()));
    assertEquals(query, asks.query(host.name()));
  }

  @Test
  void isAPartOfAUrl() {
    Host cluster = Host.cluster("x");
    assertAsks("", cluster, null);
    assertAsks("&hash=a%26b", cluster.hash("header:x-user"), null);
    assertAsks("", cluster.hash("header:absent"), null);
    assertAsks("&hash=7%20%C3%BC", cluster.hash("cookie:sid"), null);
    assertAsks("", cluster.hash("cookie:absent"), null);
    String bytes = "ü".repeat(511) + "a"; // 1023
    Ask ask = Ask.NOTHING.hash(bytes + "üb");
    assertAsks("&hash=" + Api.encode(bytes) + "%C3", cluster.hash("cookie:sid"), ask);
    assertAsks("&path=%2Fa%252Fb%2Fc", Host.target("t"), null);
    assertEquals(Host.target("t"), Host.target("xds:///t"));
    assertAsks(
        "&hash=a%26b&path=%2Fa%252Fb%2Fc&header.tenant=1&header.tenant=2",
        Host.target("t", "tenant").hash("header:x-user"), Ask.NOTHING);
    assertAsks(
        "&path=%2Fp&header.A=2&header.B=1",
        Host.target("t", "tenant"),
        Ask.NOTHING.path("/p").headers(Map.of("B", List.of("1"), "A", List.of("2"))));
    assertEquals("&path=%2F", Ask.NOTHING.query("xds:///t"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"x-user", "query:a", "header:"})
  void rejectsOtherPlacesOfAKey(String where) {
    assertThrows(IllegalArgumentException.class, () -> Host.cluster("x").hash(where));
  }

  private final Asked asked = new Asked();

  private void put(String query, int generation, boolean published) {
    String pick = "[{\"address\":\"a:1\"}]";
    String answer = "{\"generation\":" + generation + ",\"picks\":" + pick + "}";
    asked.put(BatchTest.batch("x", query, answer), published);
  }

  private void assertKnown(boolean known, String query) {
    assertEquals(known, asked.get(query) != null, query);
  }

  @Test
  void keepsTheBatchesOfOneGenerationThatWereUsedLast() {
    put("a", 5, true);
    put("late", 4, false);
    assertKnown(true, "a");
    assertKnown(false, "late");
    put("b", 6, false);
    assertKnown(false, "a");
    asked.put(Batch.ofRefusal("refused", Duration.ZERO, null), false);
    assertKnown(true, "refused");
    put("c", 3, true); // after a restart
    assertKnown(false, "b");
    assertKnown(false, "refused");
    for (int i = 0; i < Asked.MAX; i++) {
      put("query " + i, 3, false);
      assertKnown(true, "c");
    }
    assertKnown(false, "query 0");
    assertKnown(true, "query 1");
    assertKnown(false, "query 2&exclude=a");
    assertEquals("query 1", asked.last());
    assertKnown(false, "not answered");
    assertEquals("query 1", asked.last());
    put("answered", 3, false);
    put("answered&exclude=a", 3, false);
    assertEquals("answered", asked.last());
    assertKnown(true, "c");
    int some = Asked.MAX_BYTES / (24 * 1024);
    for (int i = 0; i < 2 * some; i++) {
      put(i + "x".repeat(24 * 1024), 3, false);
      assertKnown(true, "c");
    }
    assertKnown(false, "answered");
    assertKnown(false, (some - 1) + "x".repeat(24 * 1024));
    assertKnown(true, (some + 1) + "x".repeat(24 * 1024));
    put("d", 4, false);
    for (int i = 0; i < 2 * some; i++) {
      put(i / 2 + "x".repeat(24 * 1024), 4, false);
    }
    assertKnown(true, "0" + "x".repeat(24 * 1024));
    asked.clear();
    assertKnown(false, "answered");
    assertEquals("answered", asked.last()); // the first one
  }
}
