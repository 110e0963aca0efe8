package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class HttpAnswerTest {
  private static final String LENGTH = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\n{}";
  private static final String CHUNKED =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 \r\nTransfer-Encoding: chunked\r\nConnection: close"
          + "\r\n\r\n1;a=b\r\n{\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n";

  private static HttpAnswer read(String text) throws IOException {
    InputStream in = new ByteArrayInputStream(text.getBytes(StandardCharsets.ISO_8859_1));
    return HttpAnswer.read(in.read(), in);
  }

  @Test
  void readsAnAnswer() throws IOException {
    HttpAnswer answer = read(LENGTH + "next");
    assertEquals(200, answer.status());
    assertEquals("y", answer.headers().get("x"));
    assertEquals("{}", new String(answer.body()));
    assertTrue(answer.reusable());
  }

  @Test
  void readsChunks() throws IOException {
    HttpAnswer answer = read(CHUNKED);
    assertEquals(503, answer.status());
    assertEquals("{}", new String(answer.body()));
    assertFalse(answer.reusable());
  }

  @ParameterizedTest
  @ValueSource(strings = {LENGTH, CHUNKED})
  void rejectsEachPartOfAnAnswer(String whole) {
    for (int i = 1; i < whole.length(); i++) {
      String part = whole.substring(0, i);
      assertThrows(IOException.class, () -> read(part), part);
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nno header\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n"
      })
  void rejects(String text) {
    assertThrows(IOException.class, () -> read(text));
  }

  @Test
  void limitsItsHead() {
    InputStream endless =
        new InputStream() {
          @Override
          public int read() {
            return 'x';
          }
        };
    assertThrows(IOException.class, () -> HttpAnswer.read('H', endless));
  }

  @Test
  void limitsItsBody() {
    String chunk = "fffff\r\n" + "x".repeat(0xfffff) + "\r\n";
    String head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    String many = head + chunk.repeat(20) + "0\r\n\r\n";
    IOException error = assertThrows(IOException.class, () -> read(many));
    assertTrue(error.getMessage().contains("16777216"), error.getMessage());
  }
}
