package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Calls to lbd: real daemons with tokens and TLS, and servers that break the protocol. */
class ApiTest {
  @TempDir Path directory;

  private static Attempt pick(LbdClient lbd) throws Exception {
    return lbd.call("orders", Deadline.after(Duration.ofSeconds(5)), true).first();
  }

  private Path tokens(String token) throws IOException {
    String sum = sha256(token);
    return Certificates.writeSecret(
        directory.resolve("tokens.yaml"),
        "tokens:\n- name: web\n  sha256: \"" + sum + "\"\n  roles: [pick, read]\n");
  }

  private static String sha256(String text) {
    try {
      var digest = java.security.MessageDigest.getInstance("SHA-256");
      byte[] bytes = digest.digest(text.getBytes(StandardCharsets.UTF_8));
      return java.util.HexFormat.of().formatHex(bytes);
    } catch (java.security.NoSuchAlgorithmException e) {
      throw new AssertionError(e);
    }
  }

  /** A server that answers each connection with the same bytes, and then may end it. */
  private static final class Fake implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    final AtomicInteger connections = new AtomicInteger();

    interface Behavior {
      void answer(Socket socket) throws Exception;
    }

    Fake(Behavior behavior) throws IOException {
      Thread thread = new Thread(() -> serve(behavior));
      thread.setDaemon(true);
      thread.start();
    }

    private void serve(Behavior behavior) {
      try {
        while (true) {
          Socket socket = server.accept();
          connections.incrementAndGet();
          Thread thread =
              new Thread(
                  () -> {
                    try (socket) {
                      behavior.answer(socket);
                    } catch (Exception e) {
                      // the client has ended the connection
                    }
                  });
          thread.setDaemon(true);
          thread.start();
        }
      } catch (IOException e) {
        // closed
      }
    }

    String lbd() {
      return "http://127.0.0.1:" + server.getLocalPort();
    }

    @Override
    public void close() throws IOException {
      server.close();
    }
  }

  private static void head(Socket socket) throws IOException {
    int newlines = 0;
    while (newlines < 2) {
      int b = socket.getInputStream().read();
      newlines = b == '\n' ? newlines + 1 : b == '\r' ? newlines : 0;
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"address\":\"127.0.0.1:1\"}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n{\"address\":\"127.0.0.1:1\"}  ",
        "HTTP/1.1 200 OK\r\n\r\n{\"address\":\"127.0.0.1:1\"}",
        "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"address\":\"127.0.0.1:1\"",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>"
      })
  void takesNothingButACompleteAnswer(String answer) throws Exception {
    byte[] bytes = answer.getBytes(StandardCharsets.UTF_8);
    try (Fake fake =
        new Fake(
            socket -> {
              head(socket);
              socket.getOutputStream().write(bytes);
            })) {
      for (Mode mode : Mode.values()) {
        try (LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(mode).build()) {
          UnavailableException error = assertThrows(UnavailableException.class, () -> pick(lbd));
          assertEquals("", error.code());
        }
      }
    }
  }

  @Test
  void endsACallHoweverSlowlyTheAnswerComes() throws Exception {
    try (Fake fake =
            new Fake(
                socket -> {
                  OutputStream out = socket.getOutputStream();
                  out.write("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n".getBytes());
                  for (int i = 0; i < 10_000; i++) {
                    out.write(' ');
                    Thread.sleep(20);
                  }
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(Mode.PICK).build()) {
      long began = System.nanoTime();
      Call call = lbd.call("orders", Deadline.after(Duration.ofMillis(200)), true);
      assertThrows(UnavailableException.class, call::first);
      assertTrue(System.nanoTime() - began < 4_000_000_000L, "1 s more than its wait");
    }
  }

  @Test
  void repeatsACallWhoseConnectionHadEnded() throws Exception {
    byte[] answer =
        "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"address\":\"127.0.0.1:1\"}".getBytes();
    try (Fake fake =
            new Fake(
                socket -> {
                  head(socket);
                  socket.getOutputStream().write(answer); // and end without Connection: close
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(Mode.PICK).build()) {
      for (int i = 1; i <= 20; i++) {
        pick(lbd).close();
        assertEquals(i, fake.connections.get());
      }
    }
  }

  @Test
  void triesAgainMoreAndMoreSeldom() throws Exception {
    try (Fake fake = new Fake(ApiTest::head);
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).build()) {
      long began = System.nanoTime();
      assertThrows(UnavailableException.class, () -> pick(lbd));
      Daemon.until("it has tried five times", () -> fake.connections.get() >= 5);
      double seconds = (System.nanoTime() - began) / 1e9;
      assertTrue(seconds > 1.1, "0.1 + 0.2 + 0.4 + 0.8 s, less 20 %: " + seconds);
    }
  }

  @Test
  void readsTheTokenAgainWhenItIsRejected() throws Exception {
    Path file = Files.writeString(directory.resolve("token"), "old-token-0123456789\n");
    try (Daemon daemon = new Daemon("--tokens=" + tokens("new-token-0123456789"));
        LbdClient lbd =
            LbdClient.builder().address(daemon.lbd()).tokenFile(file).mode(Mode.PICK).build()) {
      assertThrows(PermissionDeniedException.class, () -> pick(lbd));
      Files.writeString(file, "new-token-0123456789\n");
      assertThrows(UnknownClusterException.class, () -> pick(lbd));
    }
  }

  @Test
  void trustsTheCertificatesOfItsSetting() throws Exception {
    Certificates right = new Certificates(directory, "ip:127.0.0.1");
    Certificates other = new Certificates(directory, "ip:127.0.0.1");
    Path ca = right.writeCertificate(directory.resolve("cert.pem"));
    try (Daemon daemon =
        new Daemon(
            "--listen=127.0.0.1:0,tls",
            "--tls-cert=" + ca,
            "--tls-key=" + right.writeKey(directory.resolve("key.pem")))) {
      daemon.push("orders", "127.0.0.1:9001");
      LbdClientBuilder settings = LbdClient.builder().address("https://" + daemon.tcp());
      try (LbdClient lbd = settings.ca(ca).build();
          Attempt attempt = pick(lbd)) {
        assertEquals("127.0.0.1:9001", attempt.address());
      }
      String name = "https://localhost:" + daemon.tcp().split(":")[1];
      try (LbdClient lbd = settings.address(name).build()) {
        assertThrows(UnavailableException.class, () -> pick(lbd), "valid for another name");
      }
      settings.address("https://" + daemon.tcp());
      Path wrong = other.writeCertificate(directory.resolve("other.pem"));
      try (LbdClient lbd = settings.ca(wrong).build()) {
        assertThrows(UnavailableException.class, () -> pick(lbd));
      }
    }
  }
}
