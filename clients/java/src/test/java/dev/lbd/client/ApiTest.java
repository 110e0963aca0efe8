package dev.lbd.client;

import static java.net.http.HttpResponse.BodyHandlers.discarding;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.net.URL;
import java.net.URLClassLoader;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Calls to lbd: real daemons with tokens and TLS, and servers that break the protocol. */
class ApiTest {
  @TempDir Path directory;

  private static Attempt pick(LbdClient lbd) throws Exception {
    return pick(lbd, "orders");
  }

  private static Attempt pick(LbdClient lbd, String cluster) throws Exception {
    return pick(lbd, cluster, Ask.NOTHING);
  }

  private static Attempt pick(LbdClient lbd, String cluster, Ask ask) throws Exception {
    return lbd.call(cluster, ask, Deadline.after(Duration.ofSeconds(5)), true).first();
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

  /** Reads the head of a request, and returns its first line. */
  private static String head(Socket socket) throws IOException {
    String head = readTo(socket, "\r\n\r\n");
    return head.substring(0, head.indexOf("\r"));
  }

  /** Reads the body of a report. */
  private static String body(Socket socket) throws IOException {
    return readTo(socket, "]}]}");
  }

  private static String readTo(Socket socket, String end) throws IOException {
    StringBuilder text = new StringBuilder();
    while (text.indexOf(end) < 0) {
      int next = socket.getInputStream().read();
      if (next < 0) {
        throw new EOFException(text.toString());
      }
      text.append((char) next);
    }
    return text.toString();
  }

  private static void answer(Socket socket, int status, String json) throws IOException {
    String head = "HTTP/1.1 " + status + " x\r\nConnection: close\r\nContent-Length: ";
    String answer = head + json.length() + "\r\n\r\n" + json;
    socket.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
  }

  private static final String LEASE = "{\"address\":\"127.0.0.1:1\",\"lease\":{\"id\":\"one\"}}";

  @Test
  void endsALeaseAlthoughCallsAreRejected() throws Exception {
    AtomicInteger renewals = new AtomicInteger();
    AtomicInteger ends = new AtomicInteger();
    try (Fake fake =
            new Fake(
                socket -> {
                  String line = head(socket);
                  if (line.contains("/renew")) {
                    renewals.incrementAndGet();
                    answer(socket, 503, "{\"code\":\"shutting_down\"}");
                  } else if (line.contains("/done") && ends.incrementAndGet() == 1) {
                    answer(socket, 503, "{\"code\":\"shutting_down\"}");
                  } else {
                    answer(socket, 200, LEASE);
                  }
                });
        LbdClient lbd =
            LbdClient.builder()
                .address(fake.lbd())
                .mode(Mode.LEASE)
                .ttl(Duration.ofMillis(100))
                .build()) {
      Attempt attempt = lbd.call("orders", Deadline.NEVER, true).first();
      Daemon.until("it was renewed twice", () -> renewals.get() >= 2);
      attempt.close();
      Daemon.until("it is ended at the second try", () -> ends.get() == 2);
    }
  }

  private static LbdClientBuilder leasing(Fake fake) {
    return LbdClient.builder().address(fake.lbd()).mode(Mode.LEASE);
  }

  @Test
  void renewsAndEndsLeasesAlthoughCallsForOthersGetNoAnswer() throws Exception {
    AtomicInteger picks = new AtomicInteger();
    AtomicInteger renewals = new AtomicInteger(); // those that wait for an answer
    AtomicInteger ends = new AtomicInteger();
    try (Fake fake =
            new Fake(
                socket -> {
                  String line = head(socket);
                  if (line.contains("/v1/pick")) {
                    answer(socket, 200, LEASE.replace("one", "id-" + picks.incrementAndGet()));
                    return;
                  }
                  AtomicInteger waiting = line.contains("/renew") ? renewals : ends;
                  waiting.incrementAndGet();
                  try {
                    socket.getInputStream().transferTo(OutputStream.nullOutputStream());
                  } finally {
                    waiting.decrementAndGet();
                  }
                });
        LbdClient lbd = leasing(fake).ttl(Duration.ofMillis(100)).build()) {
      List<Attempt> attempts = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        attempts.add(lbd.call("orders", Deadline.NEVER, true).first());
      }
      Daemon.until("all are renewed at the same time", () -> renewals.get() == 3);
      attempts.forEach(Attempt::close);
      Daemon.until(
          "leases are ended at the same time",
          () -> {
            pick(lbd).close();
            return ends.get() >= 3;
          });
    }
  }

  @Test
  void endsTheLeaseOfAnAttemptThatWasForgotten() throws Exception {
    AtomicInteger ends = new AtomicInteger();
    try (Fake fake =
            new Fake(
                socket -> {
                  ends.addAndGet(head(socket).contains("/done") ? 1 : 0);
                  answer(socket, 200, LEASE);
                });
        LbdClient lbd = leasing(fake).build()) {
      Attempt held = pick(lbd);
      pick(lbd);
      Daemon.until(
          "the lease is ended",
          () -> {
            System.gc();
            return ends.get() == 1;
          });
      System.gc();
      assertEquals(1, ends.get());
      held.close();
    }
  }

  @Test
  void countsNoRequestThatWasNotSent() throws Exception {
    List<String> bodies = new CopyOnWriteArrayList<>();
    String batch = "{\"generation\":1,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";
    try (Fake fake =
        new Fake(
            socket -> {
              if (head(socket).contains("/v1/reports")) {
                bodies.add(body(socket));
              }
              answer(socket, 200, batch);
            })) {
      LbdClient lbd = LbdClient.builder().address(fake.lbd()).build();
      pick(lbd).close();
      HttpClient http = new LbdHttpClient(lbd);
      URI url = URI.create("http://orders.lbd/");
      HttpRequest request = HttpRequest.newBuilder(url).timeout(Duration.ofNanos(1)).build();
      for (int i = 0; i < 2; i++) {
        assertThrows(HttpTimeoutException.class, () -> http.send(request, discarding()));
        ExecutionException error =
            assertThrows(
                ExecutionException.class, () -> http.sendAsync(request, discarding()).get());
        assertInstanceOf(HttpTimeoutException.class, error.getCause());
      }
      lbd.close();
      String report = String.join("", bodies);
      assertTrue(report.contains("\"requests\":1,\"errors\":0,\"cancelled\":1,"), report);
    }
  }

  @Test
  void reportsWithANameOfItsOwn() throws Exception {
    List<String> bodies = new CopyOnWriteArrayList<>();
    String batch = "{\"generation\":1,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";
    try (Fake fake =
        new Fake(
            socket -> {
              if (head(socket).contains("/v1/reports")) {
                bodies.add(body(socket));
              }
              answer(socket, 200, batch);
            })) {
      Set<String> names = new TreeSet<>();
      for (int i = 0; i < 2; i++) {
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).build();
        pick(lbd).close();
        lbd.close();
        String name = (String) Json.object(bodies.get(i).getBytes()).get("reporter");
        String process = lbd.settings().owner();
        assertTrue(process.endsWith("/" + ProcessHandle.current().pid()), process);
        assertTrue(name.matches(Pattern.quote(process) + "/[0-9a-f]{8}"), name);
        names.add(name);
      }
      assertEquals(2, names.size());
    }
  }

  @Test
  void asksLbdToWaitForNoLongerThanTheCall() throws Exception {
    List<String> lines = new CopyOnWriteArrayList<>();
    String batch = "{\"generation\":1,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";
    try (Fake fake =
            new Fake(
                socket -> {
                  lines.add(head(socket));
                  answer(socket, 200, batch);
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).build()) {
      pick(lbd).close();
      assertTrue(lines.get(0).contains("&wait=1000ms"), lines.get(0));
    }
  }

  @Test
  void pausesBetweenRefusals() throws Exception {
    AtomicInteger batches = new AtomicInteger();
    try (Fake fake =
            new Fake(
                socket -> {
                  head(socket);
                  answer(socket, 503, "{\"code\":\"dropped\"}");
                  batches.incrementAndGet();
                });
        LbdClient lbd =
            LbdClient.builder().address(fake.lbd()).maxAge(Duration.ofMillis(1)).build()) {
      long began = System.nanoTime();
      assertThrows(DroppedException.class, () -> pick(lbd));
      Daemon.until("there were six batches", () -> batches.get() >= 6);
      double seconds = (System.nanoTime() - began) / 1e9;
      assertTrue(seconds > 0.45, "0.1 s between two of them: " + seconds);
    }
  }

  @Test
  void asksForNoOtherLeaseAfterTheDeadline() throws Exception {
    AtomicInteger picks = new AtomicInteger();
    AtomicInteger ends = new AtomicInteger();
    try (Fake fake =
            new Fake(
                socket -> {
                  if (head(socket).contains("/done")) {
                    ends.incrementAndGet();
                    socket.getInputStream().transferTo(OutputStream.nullOutputStream());
                  } else {
                    picks.incrementAndGet();
                    answer(socket, 200, LEASE);
                  }
                });
        LbdClient lbd = leasing(fake).build()) {
      Call call = lbd.call("orders", Deadline.after(Duration.ofSeconds(2)), true);
      Attempt attempt = call.first();
      attempt.answered(503);
      assertTrue(call.retry().isEmpty());
      assertEquals(1, ends.get());
      assertEquals(1, picks.get());
    }
  }

  @Test
  void asksForNoOtherLeaseForARequestThatWasGivenUp() throws Exception {
    AtomicBoolean over = new AtomicBoolean();
    AtomicInteger picks = new AtomicInteger();
    try (Fake fake =
            new Fake(
                socket -> {
                  boolean done = head(socket).contains("/done");
                  over.set(done);
                  picks.addAndGet(done ? 0 : 1);
                  answer(socket, 200, LEASE);
                });
        LbdClient lbd = leasing(fake).build()) {
      Call call = lbd.call("orders", Deadline.NEVER, true);
      Attempt attempt = call.first();
      attempt.answered(503);
      assertTrue(call.retry(over::get).isEmpty());
      assertEquals(1, picks.get());
      attempt.close();
    }
  }

  private static final String EXCLUDED = "{\"code\":\"all_excluded\"}";

  /** Answers picks of one address, batches of it, and everything else. */
  private static void answerOne(Socket socket, String line) throws IOException {
    String one = "\"address\":\"127.0.0.1:1\"";
    String lease = ",\"lease\":{\"id\":\"one\"},";
    boolean excluded = line.contains("&exclude=");
    answer(
        socket,
        excluded ? 503 : 200,
        excluded ? EXCLUDED : "{" + one + lease + "\"generation\":1,\"picks\":[{" + one + "}]}");
  }

  @Test
  void tellsLbdOfConnectsThatFailedAndPicksWhatIsSetAside() throws Exception {
    List<Boolean> excluding = new CopyOnWriteArrayList<>();
    List<String> bodies = new CopyOnWriteArrayList<>();
    try (Fake fake =
            new Fake(
                socket -> {
                  String line = head(socket);
                  if (line.contains("/v1/reports")) {
                    bodies.add(body(socket));
                  } else {
                    excluding.add(line.contains("&exclude=127.0.0.1%3A1"));
                  }
                  answerOne(socket, line);
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(Mode.PICK).build()) {
      for (int i = 0; i < 2; i++) {
        Call call = lbd.call("orders", Deadline.NEVER, false);
        assertTrue(call.first().unsent(new ConnectException(), false));
        assertTrue(i == 0 || call.retry().isEmpty());
      }
      assertEquals(List.of(false, true, false, true), excluding.subList(0, 4));
      assertFalse(excluding.subList(4, excluding.size()).contains(false), "it asks again");
      String report =
          "{\"reporter\":"
              + Json.quote(lbd.settings().reporter())
              + ",\"clusters\":[{\"cluster\":\"orders\",\"endpoints\":["
              + "{\"address\":\"127.0.0.1:1\",\"connect_failures\":N}]}]}";
      String two = report.replace("N", "2");
      String one = report.replace("N", "1"); // the machine is slow
      Daemon.until("lbd is told", () -> List.of(List.of(two), List.of(one, one)).contains(bodies));
    }
  }

  @Test
  void endsTheLeaseOfATryThatWasNotSent() throws Exception {
    List<String> ends = new CopyOnWriteArrayList<>();
    try (Fake fake =
            new Fake(
                socket -> {
                  String line = head(socket);
                  if (line.contains("/v1/leases/done")) {
                    ends.add(readTo(socket, "]}"));
                  }
                  answerOne(socket, line);
                });
        LbdClient lbd = leasing(fake).build()) {
      Call call = lbd.call("orders", Deadline.NEVER, false);
      call.first().unsent(new ConnectException(), false);
      assertTrue(call.retry().isEmpty());
      Daemon.until("the lease is ended, also before the retry", () -> ends.size() == 2);
      for (String end : ends) {
        assertTrue(
            end.endsWith("{\"leases\":[{\"id\":\"one\",\"outcome\":\"unreachable\"}]}"), end);
      }
    }
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void connectsWithMoreTimeIfThereIsNoOtherEndpoint(Mode mode) throws Exception {
    try (Fake fake = new Fake(socket -> answerOne(socket, head(socket)));
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(mode).build()) {
      Call call = lbd.call("orders", Deadline.NEVER, false);
      Attempt attempt = call.first();
      assertEquals(Duration.ofMillis(250), attempt.connectTimeout());
      attempt.unsent(new SocketTimeoutException(), true);
      attempt = call.retry().orElseThrow();
      assertEquals(Duration.ofSeconds(5), attempt.connectTimeout());
      attempt.unsent(new SocketTimeoutException(), true);
      assertTrue(call.retry().isEmpty());
    }
  }

  @Test
  void asksForThePicksOfTwoSeconds() throws Exception {
    LinkedBlockingQueue<Integer> asked = new LinkedBlockingQueue<>();
    try (Fake fake =
            new Fake(
                socket -> {
                  String line = head(socket);
                  boolean pick = line.contains("/v1/pick");
                  int n = pick ? Integer.parseInt(line.replaceAll(".*&n=(\\d+).*", "$1")) : 0;
                  if (pick) {
                    asked.add(n);
                  }
                  if (n > 100) {
                    answer(socket, 400, "{\"code\":\"invalid_argument\"}");
                  } else {
                    answerOne(socket, line);
                  }
                });
        LbdClient lbd =
            LbdClient.builder().address(fake.lbd()).maxAge(Duration.ofMillis(500)).build()) {
      pick(lbd).close();
      assertEquals(100, asked.take());
      assertEquals(20, asked.take());
      int n = 20;
      while (n == 20) { // a batch that ends meanwhile does not count what comes after its end
        for (int i = 0; i < 3000; i++) {
          pick(lbd).close();
        }
        n = asked.take();
      }
      assertTrue(n > 100, "" + n);
      assertEquals(100, asked.take());
    }
  }

  @Test
  void endsALeaseThatComesAfterClose() throws Exception {
    CountDownLatch asked = new CountDownLatch(1);
    CountDownLatch closed = new CountDownLatch(1);
    AtomicInteger ends = new AtomicInteger();
    try (Fake fake =
        new Fake(
            socket -> {
              if (head(socket).contains("/done")) {
                ends.incrementAndGet();
              } else {
                asked.countDown();
                closed.await();
              }
              answer(socket, 200, LEASE);
            })) {
      LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(Mode.LEASE).build();
      Thread closing =
          new Thread(
              () -> {
                try {
                  asked.await();
                } catch (InterruptedException e) {
                  throw new AssertionError(e);
                }
                lbd.close();
                closed.countDown();
              });
      closing.start();
      assertThrows(UnavailableException.class, () -> pick(lbd));
      assertEquals(1, ends.get());
      closing.join();
    }
  }

  @Test
  void followsClustersWhoseNamesAreSpecialInPaths() throws Exception {
    List<String> lines = new CopyOnWriteArrayList<>();
    String batch = "{\"generation\":1,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";
    try (Fake fake =
            new Fake(
                socket -> {
                  lines.add(head(socket));
                  answer(socket, 200, batch);
                });
        LbdClient lbd =
            LbdClient.builder()
                .address(fake.lbd())
                .staleFor(ChronoUnit.FOREVER.getDuration())
                .maxAge(ChronoUnit.FOREVER.getDuration())
                .build()) {
      for (var path : Map.of("watch", "%77atch", "a/b", "a%2Fb", "é", "%C3%A9").entrySet()) {
        lbd.call(path.getKey(), Deadline.NEVER, true).first().close();
        String followed = "GET /v1/clusters/" + path.getValue() + "?";
        Daemon.until(followed, () -> lines.stream().anyMatch(line -> line.startsWith(followed)));
      }
    }
  }

  @Test
  void pausesIfTheGenerationNeverIsThatOfTheBatch() throws Exception {
    AtomicInteger batches = new AtomicInteger();
    String batch = "{\"generation\":5,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";
    try (Fake fake =
            new Fake(
                socket -> {
                  boolean follow = head(socket).contains("/v1/clusters/");
                  answer(socket, 200, follow ? "{\"generation\":7}" : batch);
                  batches.addAndGet(follow ? 0 : 1);
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).build()) {
      long began = System.nanoTime();
      pick(lbd).close();
      Daemon.until("there were six batches", () -> batches.get() >= 6);
      double seconds = (System.nanoTime() - began) / 1e9;
      assertTrue(seconds > 0.45, "0.1 s between two of them: " + seconds);
    }
  }

  @Test
  void doesNotSendAReportAgainThatIsUnderWayAtTheEnd() throws Exception {
    CountDownLatch closing = new CountDownLatch(1);
    AtomicInteger reports = new AtomicInteger();
    String batch = "{\"generation\":1,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";
    try (Fake fake =
        new Fake(
            socket -> {
              if (!head(socket).contains("/v1/reports")) {
                answer(socket, 200, batch);
              } else if (!body(socket).contains("\"requests\":1")) {
                answer(socket, 200, "{}"); // it has only the time in flight
              } else {
                reports.incrementAndGet();
                closing.await();
                answer(socket, 503, "{\"code\":\"shutting_down\"}");
              }
            })) {
      LbdClient lbd =
          LbdClient.builder().address(fake.lbd()).reportInterval(Duration.ofMillis(50)).build();
      pick(lbd).close();
      Daemon.until("a report is under way", () -> reports.get() == 1);
      Thread close = new Thread(lbd::close);
      close.start();
      Daemon.until("close waits", () -> close.getState() == Thread.State.TIMED_WAITING);
      closing.countDown();
      close.join();
      assertEquals(1, reports.get());
    }
  }

  @Test
  void forgetsClustersBeyondTheLimit() throws Exception {
    try (LbdClient lbd =
        LbdClient.builder().address("http://127.0.0.1:1").mode(Mode.PICK).build()) {
      for (int i = 0; i < 3000; i++) {
        lbd.call("orders-" + i, Deadline.NEVER, true);
      }
    }
  }

  /** Returns how many clusters have a thread. */
  private static long followed(String prefix) {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("lbd " + prefix))
        .count();
  }

  @Test
  void withoutBatchesNamesThatLbdDoesNotKnowAreForgottenFirst() throws Exception {
    try (Daemon daemon = new Daemon();
        LbdClient lbd = LbdClient.builder().address(daemon.lbd()).mode(Mode.PICK).build()) {
      for (String name : List.of("first", "second")) {
        daemon.push(name, "127.0.0.1:1");
        pick(lbd, name).close();
      }
      Counts first = lbd.counts("first");
      Counts second = lbd.counts("second");
      for (int i = 0; i < 2000; i++) {
        lbd.call("name-" + i, Deadline.NEVER, false);
      }
      assertSame(first, lbd.counts("first"));
      for (int i = 0; i < 999; i++) {
        daemon.push("known-" + i, "127.0.0.1:1");
        pick(lbd, "known-" + i).close();
      }
      assertSame(second, lbd.counts("second"));
      assertNotSame(first, lbd.counts("first"));
    }
  }

  @Test
  void namesThatLbdDoesNotKnowNeitherKeepItBusyNorClustersFromBeingUsed() throws Exception {
    try (Daemon daemon = new Daemon();
        LbdClient lbd =
            LbdClient.builder().address(daemon.lbd()).maxAge(Duration.ofMinutes(10)).build()) {
      daemon.push("orders", "127.0.0.1:1");
      pick(lbd).close();
      for (int i = 0; i < 1100; i++) {
        String name = "later-" + i;
        assertThrows(UnknownClusterException.class, () -> pick(lbd, name), name);
      }
      Daemon.until("none of them is followed", () -> followed("later-") == 0);
      assertEquals(1, followed("orders"));
      pick(lbd).close();
      assertEquals(1, daemon.picks(200));
      assertEquals(1100, daemon.picks(404));
      for (int i = 0; i < 50; i++) {
        assertThrows(UnknownClusterException.class, () -> pick(lbd, "later-1098"));
        Daemon.until("it is not followed", () -> followed("later-") == 0);
      }
      assertTrue(daemon.picks(404) < 1150, "the answer is remembered");
      daemon.push("later-1098", "127.0.0.1:1");
      Thread.sleep(1100); // after that, lbd is asked again
      pick(lbd, "later-1098").close();
    }
  }

  @Test
  void doesNotFollowForgottenClustersWhileLbdIsUnreachable() throws Exception {
    try (Fake fake =
            new Fake(
                socket -> {
                  head(socket);
                  answer(socket, 502, "{}");
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).build()) {
      for (int i = 0; i < 1010; i++) {
        String name = "any-" + i;
        assertThrows(UnavailableException.class, () -> pick(lbd, name), name);
      }
      Daemon.until("10 clusters are followed", () -> followed("any-") == 10);
      assertEquals(10, followed("any-100")); // 1000 to 1009
    }
  }

  @Test
  void failsNoOtherPathThanThatWhichLbdRejects() throws Exception {
    try (Fake fake =
            new Fake(
                socket -> {
                  if (head(socket).contains("&path=%2Fbad")) {
                    answer(socket, 400, "{\"code\":\"invalid_argument\"}");
                  } else {
                    String pick = "{\"address\":\"127.0.0.1:1\",\"cluster\":\"orders\"}";
                    answer(socket, 200, "{\"generation\":1,\"picks\":[" + pick + "]}");
                  }
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).build()) {
      assertRejected(() -> pick(lbd, "xds:///shop", Ask.NOTHING.path("/bad")));
      Daemon.until("it is not followed", () -> followed("xds:///shop") == 0);
      pick(lbd, "xds:///shop", Ask.NOTHING.path("/good")).close();
      assertRejected(() -> pick(lbd, "xds:///shop", Ask.NOTHING.path("/bad")));
    }
  }

  private static final String BATCH =
      "{\"generation\":1,\"picks\":[{\"address\":\"127.0.0.1:1\"}]}";

  /** A call does not end with the request that began it. */
  @Test
  void makesOneCallForAllRequestsThatNeedTheBatchOfAKey() throws Exception {
    AtomicInteger calls = new AtomicInteger();
    AtomicInteger failed = new AtomicInteger();
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch end = new CountDownLatch(1);
    ExecutorService requests = Executors.newCachedThreadPool();
    try (Fake fake =
            new Fake(
                socket -> {
                  String line = head(socket);
                  if (line.contains("/v1/clusters/")) {
                    end.await();
                  } else if (line.contains("&hash=b")) {
                    calls.incrementAndGet();
                    begun.countDown();
                    end.await();
                  } else if (line.contains("&hash=c") && failed.getAndIncrement() == 0) {
                    answer(socket, 503, "{\"code\":\"no_ready_endpoint\"}");
                  }
                  answer(socket, 200, BATCH);
                });
        LbdClient lbd =
            LbdClient.builder().address(fake.lbd()).maxAge(Duration.ofMinutes(10)).build()) {
      Ask ask = Ask.NOTHING.hash("b");
      pick(lbd, "orders", Ask.NOTHING.hash("a")).close();
      Deadline soon = Deadline.after(Duration.ofMillis(50));
      LbdException error =
          assertThrows(
              UnavailableException.class, () -> lbd.call("orders", ask, soon, true).first());
      assertTrue(error.getMessage().contains("in time"), error.getMessage());
      begun.await();
      List<Future<?>> picks = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        picks.add(
            requests.submit(
                () -> {
                  pick(lbd, "orders", ask).close();
                  return null;
                }));
      }
      end.countDown();
      for (Future<?> pick : picks) {
        pick.get();
      }
      pick(lbd, "orders", ask).close();
      assertEquals(1, calls.get());
      assertThrows(UnavailableException.class, () -> pick(lbd, "orders", Ask.NOTHING.hash("c")));
      pick(lbd, "orders", Ask.NOTHING.hash("c")).close();
    } finally {
      requests.shutdown();
    }
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void failsWhatIsTooLongForLbd(Mode mode) throws Exception {
    List<State> states = new CopyOnWriteArrayList<>();
    LbdListener listener =
        new LbdListener() {
          @Override
          public void onState(State state) {
            states.add(state);
          }
        };
    try (Daemon daemon = new Daemon();
        LbdClient lbd =
            LbdClient.builder()
                .address(daemon.lbd())
                .mode(mode)
                .fallback("127.0.0.1:9")
                .listener(listener)
                .build()) {
      daemon.push("orders", "127.0.0.1:1");
      daemon.pushRoute("shop", "/a", "orders");
      Map<String, Ask> tooLong =
          Map.of(
              "xds:///shop",
              Ask.NOTHING.path("/".repeat(300_000)),
              "xds:///" + "shop".repeat(30_000),
              Ask.NOTHING,
              "ü".repeat(300),
              Ask.NOTHING);
      for (var entry : tooLong.entrySet()) {
        assertRejected(() -> pick(lbd, entry.getKey(), entry.getValue()));
      }
      assertRejected(
          () -> pick(lbd, "xds:///shop", Ask.NOTHING.path("/a".repeat(2500)))); // for lbd
      try (Attempt attempt = pick(lbd, "xds:///shop", Ask.NOTHING.path("/a"))) {
        assertEquals("127.0.0.1:1", attempt.address());
      }
      assertEquals(List.of(), states);
    }
  }

  private static void assertRejected(Executable pick) {
    UnavailableException error = assertThrows(UnavailableException.class, pick);
    assertEquals("invalid_argument", error.code());
    assertTrue(error.getMessage().length() < 1000);
  }

  @Test
  void threadsDoNotHoldWhatBelongsToARequest() throws Exception {
    AtomicInteger inherited = new AtomicInteger();
    InheritableThreadLocal<String> local =
        new InheritableThreadLocal<>() {
          @Override
          protected String childValue(String value) {
            inherited.incrementAndGet();
            return value;
          }
        };
    Thread current = Thread.currentThread();
    ClassLoader before = current.getContextClassLoader();
    try (Daemon daemon = new Daemon();
        LbdClient lbd = LbdClient.builder().address(daemon.lbd()).build();
        URLClassLoader loader = new URLClassLoader(new URL[0])) {
      daemon.push("orders", "127.0.0.1:1");
      local.set("request");
      current.setContextClassLoader(loader);
      pick(lbd).close();
      assertEquals(0, inherited.get());
      for (Thread thread : Thread.getAllStackTraces().keySet()) {
        assertTrue(
            !thread.getName().startsWith("lbd ") || thread.getContextClassLoader() != loader,
            thread.getName());
      }
    } finally {
      current.setContextClassLoader(before);
      local.remove();
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
        "HTTP/1.1 302 Found\r\nContent-Length: 12\r\n\r\n{\"code\":\"x\"}",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 503 x\r\nContent-Length: 11\r\n\r\n{\"code\":\"\"}",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n{\"code\":7}",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
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
    CountDownLatch late = new CountDownLatch(1);
    try (Fake fake =
            new Fake(
                socket -> {
                  OutputStream out = socket.getOutputStream();
                  out.write("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n".getBytes());
                  for (int i = 0; i < 10_000; i++) {
                    out.write(' ');
                    Thread.sleep(20);
                    if (i == 1000) {
                      late.countDown();
                    }
                  }
                });
        LbdClient lbd = LbdClient.builder().address(fake.lbd()).mode(Mode.PICK).build()) {
      Call call = lbd.call("orders", Deadline.after(Duration.ofMillis(200)), true);
      assertThrows(UnavailableException.class, call::first);
      assertEquals(1, late.getCount(), "20 s after the call");
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
