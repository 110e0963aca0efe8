package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
  private static Map<String, Object> parse(String text) {
    return Json.object(text.getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void readsEachKindOfValue() {
    Map<String, Object> object =
        parse(
            " {\"a\":[1, -2 ,0.5,1e2,-0],\"b\":{\"c\":true,\"d\":false},\"e\":\"\\u00e4\\n\\\"ü\","
                + "\"f\":[],\"g\":{},\"big\":9223372036854775807,\"bigger\":9223372036854775808}\n");
    assertEquals(List.of(1L, -2L, 0.5, 100.0, 0L), object.get("a"));
    assertEquals(Map.of("c", true, "d", false), object.get("b"));
    assertEquals("ä\n\"ü", object.get("e"));
    assertEquals(List.of(), object.get("f"));
    assertEquals(Map.of(), object.get("g"));
    assertEquals(Long.MAX_VALUE, object.get("big"));
    assertEquals(9223372036854775808.0, object.get("bigger"));
    assertEquals(null, parse("{\"n\":null}").get("n"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        " ",
        "{",
        "}",
        "[]",
        "1",
        "\"a\"",
        "null",
        "{}x",
        "{}{}",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":0x1}",
        "{\"a\":NaN}",
        "{\"a\":tru}",
        "{\"a\":nulL}",
        "{\"a\":[1 2]}",
        "{\"a\":[1,]}",
        "{\"a\":[}",
        "{\"a\":\"b}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":1}\u0000",
        "\u0000{}",
        "\ufeff{}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":\"\\",
        "{\"a\":١}"
      })
  void rejects(String text) {
    assertThrows(IllegalArgumentException.class, () -> parse(text));
  }

  @Test
  void rejectsEachPartOfAnAnswer() {
    String whole = "{\"picks\":[{\"address\":\"a:1\",\"n\":-1.5e3}],\"ok\":true,\"x\":\"\\u0041\"}";
    parse(whole);
    for (int i = 0; i < whole.length(); i++) {
      String part = whole.substring(0, i);
      assertThrows(IllegalArgumentException.class, () -> parse(part), part);
    }
  }

  @Test
  void rejectsWhatIsNotUtf8() {
    byte[] bytes = "{\"a\":\"xx\"}".getBytes(StandardCharsets.UTF_8);
    bytes[6] = (byte) 0xff;
    assertThrows(IllegalArgumentException.class, () -> Json.object(bytes));
  }

  @Test
  void rejectsWhatIsTooDeep() {
    char[] brackets = new char[1_000_000];
    Arrays.fill(brackets, '[');
    assertThrows(
        IllegalArgumentException.class, () -> parse("{\"a\":" + new String(brackets) + "}"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "a b", "\"\\/", "\n\t\u0000\u001f", "ä€", "\ud83d\ude00", "\ud800"})
  void quotes(String text) {
    assertEquals(text, parse("{\"a\":" + Json.quote(text) + "}").get("a"));
  }
}
