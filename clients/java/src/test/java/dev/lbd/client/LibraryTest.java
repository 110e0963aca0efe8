package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpTimeoutException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.ResourceBundle;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The tests of all HTTP libraries, with a real daemon and real upstreams. */
abstract class LibraryTest extends Stand {
  abstract Library library(LbdClient lbd);

  /** Returns a library with a client for https that trusts certificates. */
  abstract Library trusting(LbdClient lbd, Certificates certificates) throws Exception;

  /** So many that some go to each of two endpoints: the picks of a batch are shuffled. */
  private static final int MANY = 40;

  private static Library.Response get(Library library, String url) throws Exception {
    return library.send("GET", url, null, false, TIMEOUT);
  }

  @Test
  void keepsHostPathAndBody() throws Exception {
    Upstream upstream = upstreams(Upstream::reply).get(0);
    Library library = library(client(Mode.BATCH));
    Library.Response response = library.send("POST", url + "/a%20b?c=%2F", "body", false, TIMEOUT);
    assertEquals(new Library.Response(200, upstream.address()), response);
    assertEquals(List.of("POST /a%20b?c=%2F " + cluster + ".lbd body"), upstream.requests);
  }

  @Test
  void doesNotTouchOtherHosts() throws Exception {
    Upstream upstream = closing(new Upstream());
    Library library = library(client(Mode.BATCH));
    assertEquals(200, get(library, "http://" + upstream.address() + "/x").status());
    assertEquals(List.of("GET /x " + upstream.address() + " "), upstream.requests);
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void retriesAtAnotherEndpoint(Mode mode) throws Exception {
    for (Upstream.Behavior broken :
        List.<Upstream.Behavior>of(Upstream::reset, Upstream.status(503))) {
      List<Upstream> both = upstreams(Upstream::reply, broken);
      Library library = library(client(mode));
      for (int i = 0; i < MANY; i++) {
        Library.Response response = library.send("PUT", url, "x", false, TIMEOUT);
        assertEquals(new Library.Response(200, both.get(0).address()), response);
      }
      assertTrue(both.get(1).requests.size() > 0, "the broken endpoint was tried");
    }
  }

  @Test
  void doesNotRetryAPost() throws Exception {
    List<Upstream> both = upstreams(Upstream::reply, Upstream.status(503));
    Library library = library(client(Mode.BATCH));
    Set<Integer> statuses = new TreeSet<>();
    for (int i = 0; i < MANY; i++) {
      statuses.add(library.send("POST", url, "x", false, TIMEOUT).status());
    }
    assertEquals(Set.of(200, 503), statuses);
    assertEquals(MANY, both.get(0).requests.size() + both.get(1).requests.size());
    for (int i = 0; i < 8; i++) {
      assertEquals(200, library.send("POST", url, "x", true, TIMEOUT).status());
    }
  }

  @Test
  void doesNotSendAPostAgainOnAnotherConnection() throws Exception {
    AtomicBoolean closes = new AtomicBoolean();
    Upstream.Behavior behavior =
        e -> {
          if (closes.get()) {
            Upstream.reset(e);
          } else {
            Upstream.reply(e);
          }
        };
    Upstream upstream = upstreams(behavior).get(0);
    Library library = library(client(Mode.BATCH));
    assertEquals(200, library.send("POST", url, "x", false, TIMEOUT).status());
    closes.set(true);
    assertThrows(IOException.class, () -> library.send("POST", url, "x", false, TIMEOUT));
    assertEquals(2, upstream.requests.size());
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void givesTheResultOfTheLastTry(Mode mode) throws Exception {
    List<Upstream> both = upstreams(Upstream.status(503), Upstream.status(503));
    Library.Response response = get(library(client(mode)), url);
    assertEquals(new Library.Response(503, "no"), response);
    assertEquals(1, both.get(0).requests.size());
    assertEquals(1, both.get(1).requests.size());
  }

  @Test
  void doesNotRetryAfterHalfABody() throws Exception {
    Upstream.Behavior half =
        e -> {
          e.sendResponseHeaders(200, 1000);
          e.getResponseBody().write(new byte[500]);
          e.getResponseBody().flush();
          throw new IOException("ends the connection");
        };
    List<Upstream> both = upstreams(half, half);
    Library library = library(client(Mode.BATCH));
    for (int i = 1; i <= 20; i++) {
      assertThrows(IOException.class, () -> get(library, url));
      assertEquals(i, both.get(0).requests.size() + both.get(1).requests.size());
    }
  }

  @Test
  void retriesAtMostTwice() throws Exception {
    List<Upstream> all =
        upstreams(Upstream::reset, Upstream::reset, Upstream::reset, Upstream::reset);
    assertThrows(IOException.class, () -> get(library(client(Mode.BATCH)), url));
    assertEquals(3, all.stream().filter(upstream -> !upstream.requests.isEmpty()).count());
  }

  @Test
  void keepsTheDeadline() throws Exception {
    List<Upstream> all = upstreams(e -> Thread.sleep(60_000), e -> Thread.sleep(60_000));
    Library library = library(client(Mode.BATCH));
    assertTimesOut(library);
    assertEquals(1, all.get(0).requests.size() + all.get(1).requests.size());
  }

  /** Endpoints that do not answer a SYN, or a TLS handshake. */
  private static final class Silent implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
    private final List<Socket> queue = new ArrayList<>();

    Silent(boolean connects) throws IOException {
      for (boolean full = connects; !full; ) {
        Socket socket = new Socket();
        queue.add(socket);
        try {
          socket.connect(server.getLocalSocketAddress(), 300);
        } catch (SocketTimeoutException e) {
          full = true;
        }
      }
    }

    String address() {
      return "127.0.0.1:" + server.getLocalPort();
    }

    @Override
    public void close() throws IOException {
      for (Socket socket : queue) {
        socket.close();
      }
      server.close();
    }
  }

  @Test
  void triesAnotherEndpointAfterTheTimeToConnect() throws Exception {
    Upstream upstream = closing(new Upstream());
    String silent = closing(new Silent(false)).address();
    daemon.push(cluster, silent);
    Duration time = Duration.ofMillis(200);
    Library library =
        library(client(LbdClient.builder().connectTimeout(time).reportInterval(time)));
    IOException error =
        assertThrows(
            IOException.class, () -> library.send("GET", url, null, false, Duration.ofMinutes(1)));
    assertNotAtDeadline(error);
    Daemon.until("lbd is told", () -> daemon.connectFailures(cluster) > 0);
    daemon.push(cluster, upstream.address(), silent);
    Daemon.until("the batch is new", () -> isAnswered(library));
    int before = daemon.connectFailures(cluster);
    Daemon.until(
        "the silent endpoint was tried again",
        () -> {
          Library.Response response = library.send("POST", url, "x", false, TIMEOUT);
          assertEquals(new Library.Response(200, upstream.address()), response);
          return daemon.connectFailures(cluster) > before;
        });
    assertEquals(0, daemon.reported(cluster, "error"));
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void sendsAnyRequestElsewhereIfNotConnected(Mode mode) throws Exception {
    Upstream upstream = closing(new Upstream());
    daemon.push(cluster, upstream.address(), "127.0.0.1:1");
    Library library = library(client(LbdClient.builder().mode(mode).maxTokens(0)));
    for (int i = 1; i <= MANY; i++) {
      Library.Response response = library.send("POST", url, "x", false, TIMEOUT);
      assertEquals(new Library.Response(200, upstream.address()), response);
      assertEquals(i, upstream.requests.size());
    }
    Daemon.until(
        "lbd is told",
        () -> daemon.connectFailures(cluster) + daemon.finished(cluster, "unreachable") > 0);
  }

  /** lbd hears that the only endpoint of a priority is gone from the request that finds it. */
  @ParameterizedTest
  @EnumSource(Mode.class)
  void waitsForAnotherPriority(Mode mode) throws Exception {
    try (Daemon connecting = new Daemon("--connect=tcp")) {
      Upstream first = new Upstream(Upstream.status(404));
      Upstream second = closing(new Upstream());
      connecting.pushPriorities(cluster, first.address(), second.address());
      LbdClientBuilder settings = LbdClient.builder().mode(mode).address(connecting.lbd());
      Library library = library(closing(settings.build()));
      assertEquals(404, get(library, url).status());
      first.close();
      Library.Response response = library.send("POST", url, "x", false, TIMEOUT);
      assertEquals(new Library.Response(200, second.address()), response);
    }
  }

  /** The first endpoint of some keys refuses connections: they go to the next one of the ring. */
  @ParameterizedTest
  @EnumSource(Mode.class)
  void sendsAHashKeyToTheSameEndpoint(Mode mode) throws Exception {
    List<Upstream> all = upstreams(Upstream::reply, Upstream::reply, Upstream::reply);
    List<String> addresses = new ArrayList<>(List.of("127.0.0.1:1"));
    all.forEach(upstream -> addresses.add(upstream.address()));
    daemon.pushRing(cluster, addresses.toArray(String[]::new));
    Host host = Host.cluster(cluster).hash("header:X-User");
    Map<String, Host> hosts = Map.of("x.test", host, "y.test", Host.cluster(cluster));
    LbdClient lbd = client(LbdClient.builder().mode(mode).hosts(hosts));
    Library library = library(lbd);
    Set<String> used = new TreeSet<>();
    for (int i = 0; i < MANY; i++) {
      String key = "key " + i % 20;
      AtomicReference<Choice> choice = new AtomicReference<>();
      Ask ask = Ask.NOTHING.choice(choice::set);
      Map<String, String> header = Map.of("x-user", key);
      String first = library.send("POST", "http://x.test", "x", header, TIMEOUT, ask).body();
      assertEquals(first, choice.get().address());
      assertEquals(cluster, choice.get().cluster());
      ask = ask.hash(key);
      assertEquals(
          first, library.send("POST", "http://y.test", "x", Map.of(), TIMEOUT, ask).body());
      used.add(first);
    }
    assertEquals(3, used.size());
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void followsTheRoutesOfATarget(Mode mode) throws Exception {
    Upstream beta = closing(new Upstream());
    daemon.push(cluster + "-0", beta.address());
    daemon.push(cluster + "-1", "127.0.0.1:1");
    daemon.pushTarget(cluster);
    Map<String, Host> hosts = Map.of("x.test", Host.target(cluster, "Tenant"));
    LbdClient lbd = client(LbdClient.builder().mode(mode).hosts(hosts).reportInterval(TIMEOUT));
    Library library = library(lbd);
    AtomicReference<Choice> choice = new AtomicReference<>();
    Ask ask = Ask.NOTHING.choice(choice::set);
    Map<String, String> tenant = Map.of("tenant", "beta");
    assertEquals(200, library.send("GET", "http://x.test/", null, tenant, TIMEOUT, ask).status());
    assertEquals(cluster + "-0", choice.get().cluster());
    assertEquals("0", choice.get().locality().zone());
    assertThrows(
        IOException.class,
        () -> library.send("GET", "http://x.test/", null, Map.of(), TIMEOUT, ask));
    assertEquals(cluster + "-1", choice.get().cluster());
    assertEquals("127.0.0.1:1", choice.get().address());
    lbd.close();
    Daemon.until(
        "lbd has counted them",
        () ->
            mode == Mode.LEASE
                ? daemon.finished(cluster + "-0", "success") == 1
                    && daemon.finished(cluster + "-1", "unreachable") == 1
                : (mode == Mode.PICK || daemon.reported(cluster + "-0", "success") == 1)
                    && daemon.connectFailures(cluster + "-1") > 0);
  }

  /** A path without a route fails, and no other, also when batches are replaced. */
  @Test
  void failsOnlyWhatHasNoRoute() throws Exception {
    daemon.push(cluster, closing(new Upstream()).address());
    daemon.pushRoute(cluster + "-target", "/a", cluster);
    Duration age = Duration.ofMillis(200);
    Map<String, Host> hosts = Map.of("X.Test", Host.target(cluster + "-target"));
    LbdClient lbd = client(LbdClient.builder().hosts(hosts).maxAge(age).staleFor(age));
    Library library = library(lbd);
    for (Deadline end = Deadline.after(Duration.ofSeconds(2)); !end.passed(); Thread.sleep(10)) {
      IOException error =
          assertThrows(
              IOException.class,
              () -> library.send("GET", "http://x.test/b", null, false, TIMEOUT));
      assertTrue(error.getMessage().contains("no_route"), error.getMessage());
      assertEquals(200, library.send("GET", "http://x.test/a", null, false, TIMEOUT).status());
    }
  }

  /** Requests without a key have all endpoints, also if the last batch is for a key. */
  @Test
  void keysHideNoEndpoint() throws Exception {
    daemon.pushRing(cluster, "127.0.0.1:1", closing(new Upstream()).address());
    for (int i = 0; i < 10; i++) {
      Library library = library(client(Mode.BATCH));
      for (String key : List.of("key " + i, "", "", "", "")) {
        Ask ask = Ask.NOTHING.hash(key);
        assertEquals(200, library.send("GET", url, null, Map.of(), TIMEOUT, ask).status());
      }
    }
  }

  /** The last batch may be one for the key, of an earlier generation than others. */
  @Test
  void followsTheClusterWithAllKeys() throws Exception {
    List<Upstream> all = upstreams(Upstream::reply, Upstream::reply);
    for (int i = 0; i < 10; i++) {
      String after = all.get(1 - i % 2).address();
      daemon.pushRing(cluster, all.get(i % 2).address());
      Library library = library(client(Mode.BATCH));
      Ask first = Ask.NOTHING.hash("first");
      library.send("GET", url, null, Map.of(), TIMEOUT, first);
      daemon.push(cluster, after);
      Ask other = Ask.NOTHING.hash("other " + i);
      Daemon.until(
          "lbd has the endpoint",
          () -> library.send("GET", url, null, Map.of(), TIMEOUT, other).body().equals(after));
      assertEquals(after, library.send("GET", url, null, Map.of(), TIMEOUT, first).body());
    }
  }

  /** What it gets, and what is logged. It fails each time. */
  private static final class Told implements LbdListener, System.Logger {
    final List<String> got = new CopyOnWriteArrayList<>();
    final List<String> log = new CopyOnWriteArrayList<>();
    final Thread caller = Thread.currentThread();

    private void get(String text) {
      got.add(text);
      throw new IllegalStateException("of the test");
    }

    @Override
    public Object onRequest() {
      return Thread.currentThread();
    }

    @Override
    public void onAttempt(Attempted attempt) {
      Choice choice = attempt.choice();
      boolean complete =
          attempt.request() != null && !attempt.duration().isZero() && attempt.context() == caller;
      boolean failed = attempt.error() != null;
      get(
          String.join(
              " ",
              choice.cluster(),
              choice.address(),
              "" + choice.attempt(),
              attempt.outcome().toString(),
              attempt.status() + (failed ? " failed" : "") + (complete ? " complete" : "")));
    }

    @Override
    public void onState(State state) {
      get(state.toString());
    }

    @Override
    public String getName() {
      return "test";
    }

    @Override
    public boolean isLoggable(Level level) {
      return true;
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
      log.add(level + " " + text + " " + thrown);
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String text, Object... parameters) {
      log.add(level + " " + text);
    }

    long logged(Level level) {
      return log.stream().filter(line -> line.startsWith(level + " ")).count();
    }
  }

  @Test
  void tellsTheProgramWhatHappens() throws Exception {
    Upstream alive = closing(new Upstream(Upstream.status(404)));
    Told told = new Told();
    Map<String, String> header = Map.of("User", "secret");
    try (Daemon own = new Daemon()) {
      own.push(cluster, "127.0.0.1:1");
      LbdClientBuilder settings = LbdClient.builder().address(own.lbd()).token("lbd_secret");
      settings.hosts(Map.of("x.test", Host.cluster(cluster).hash("header:User")));
      LbdClient lbd = closing(settings.mode(Mode.PICK).listener(told).logger(told).build());
      Library library = library(lbd);
      Callable<Integer> send =
          () ->
              library
                  .send("POST", "http://x.test/?q=secret", "secret", header, TIMEOUT, Ask.NOTHING)
                  .status();
      assertThrows(IOException.class, send::call);
      own.push(cluster, alive.address());
      assertEquals(404, send.call());
      own.stop();
      for (int i = 0; i < 2; i++) {
        String message = assertThrows(UnavailableException.class, send::call).getMessage();
        String at = "lbd is unreachable: GET /v1/pick at " + own.lbd() + " (the setting address): ";
        assertTrue(message.startsWith("cluster " + cluster + ": " + at), message);
        assertFalse(message.contains("secret"), message);
      }
      own.start();
      assertEquals(404, send.call());
      lbd.close();
    }
    String answered = cluster + " " + alive.address() + " 1 success 404 complete";
    String unreachable = cluster + " 127.0.0.1:1 1 unreachable 0 failed complete";
    assertEquals(List.of(unreachable, answered, "UNREACHABLE", "RECOVERED", answered), told.got);
    assertFalse(told.log.toString().contains("secret"), told.log.toString());
    assertEquals(3, told.logged(System.Logger.Level.DEBUG));
    assertEquals(1, told.logged(System.Logger.Level.INFO));
    assertEquals(1, told.logged(System.Logger.Level.WARNING));
    assertEquals(told.got.size(), told.logged(System.Logger.Level.ERROR));
  }

  @Test
  void reportsErrorsEarly() throws Exception {
    upstreams(Upstream.status(500));
    Duration time = Duration.ofMinutes(5);
    Library library = library(client(LbdClient.builder().reportInterval(time)));
    for (int i = 0; i < 5; i++) {
      assertEquals(500, get(library, url).status());
    }
    Daemon.until("the errors are reported", () -> daemon.reported(cluster, "error") == 5);
  }

  @Test
  void sendsAPostThoughItsConnectionWasClosed() throws Exception {
    Semaphore closed = new Semaphore(0);
    try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      Thread thread = new Thread(() -> answerAndClose(server, closed));
      thread.start();
      daemon.push(cluster, "127.0.0.1:" + server.getLocalPort());
      Library library = library(client(Mode.BATCH));
      for (int i = 0; i < 5; i++) {
        assertEquals(200, library.send("POST", url, "x", false, TIMEOUT).status());
        assertTrue(closed.tryAcquire(1, TimeUnit.MINUTES));
      }
    }
  }

  /** Answers each connection once, as if it stayed open, and closes it. */
  private static void answerAndClose(ServerSocket server, Semaphore closed) {
    try {
      while (true) {
        try (Socket socket = server.accept()) {
          String text = "";
          for (int next = 0; next >= 0 && !text.endsWith("\r\n\r\nx"); ) {
            next = socket.getInputStream().read();
            text += (char) next;
          }
          socket.getOutputStream().write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".getBytes());
        }
        closed.release();
      }
    } catch (IOException e) {
      // the test has ended
    }
  }

  private boolean isAnswered(Library library) throws Exception {
    try {
      return get(library, url).status() == 200;
    } catch (IOException e) {
      return false;
    }
  }

  @Test
  void keepsTheDeadlineWhileItConnects() throws Exception {
    daemon.push(cluster, closing(new Silent(false)).address());
    assertTimesOut(library(client(Mode.BATCH)));
    Library other = library(client(LbdClient.builder().timeout(Duration.ofMillis(300))));
    IOException error =
        assertThrows(IOException.class, () -> other.send("GET", url, null, false, null));
    assertFalse(
        error instanceof HttpConnectTimeoutException || error instanceof SocketTimeoutException,
        error.toString());
  }

  @Test
  void limitsTheTimeOfATlsHandshake(@TempDir Path directory) throws Exception {
    daemon.push(cluster, closing(new Silent(true)).address());
    LbdClient lbd = client(LbdClient.builder().connectTimeout(Duration.ofMillis(200)));
    Library library = trusting(lbd, new Certificates(directory, "dns:" + cluster + ".lbd"));
    IOException error =
        assertThrows(
            IOException.class,
            () -> library.send("GET", "https://" + cluster + ".lbd/", null, false, TIMEOUT));
    assertNotAtDeadline(error);
  }

  private static void assertNotAtDeadline(IOException error) {
    assertTrue(
        error instanceof HttpConnectTimeoutException || error instanceof SocketTimeoutException,
        error.toString());
  }

  @Test
  void keepsTheDeadlineHoweverSlowlyTheBodyComes() throws Exception {
    upstreams(Upstream::drip);
    assertTimesOut(library(client(Mode.BATCH)));
  }

  private void assertTimesOut(Library library) {
    long began = System.nanoTime();
    IOException error =
        assertThrows(
            IOException.class, () -> library.send("GET", url, null, false, Duration.ofSeconds(2)));
    assertTrue(
        error instanceof HttpTimeoutException || error instanceof InterruptedIOException,
        error.toString());
    assertTrue(System.nanoTime() - began < 20_000_000_000L, "not the 30 s of the client");
  }

  @Test
  void reportsHowRequestsEnded() throws Exception {
    upstreams(e -> Upstream.reply(e, e.getRequestURI().getPath().equals("/bad") ? 500 : 200, "x"));
    LbdClient lbd = client(Mode.BATCH);
    Library library = library(lbd);
    for (String path : List.of("/", "/", "/bad")) {
      get(library, url + path);
    }
    lbd.close();
    assertEquals(2, daemon.reported(cluster, "success"));
    assertEquals(1, daemon.reported(cluster, "error"));
  }

  @Test
  void countsResponsesWithoutBody() throws Exception {
    upstreams(e -> e.sendResponseHeaders(204, -1));
    LbdClient lbd = client(Mode.BATCH);
    Library library = library(lbd);
    for (int i = 0; i < 100; i++) {
      assertEquals(204, get(library, url).status());
    }
    lbd.close();
    assertEquals(100, daemon.reported(cluster, "success"));
  }

  @Test
  void endsLeases() throws Exception {
    upstreams(e -> Upstream.reply(e, e.getRequestURI().getPath().equals("/bad") ? 500 : 200, "x"));
    Library library = library(client(Mode.LEASE));
    for (String path : List.of("/", "/", "/bad")) {
      get(library, url + path);
    }
    Daemon.until("all leases are ended", () -> daemon.inFlight(cluster) == 0);
    assertEquals(2, daemon.finished(cluster, "success"));
    assertEquals(1, daemon.finished(cluster, "error"));
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void namesUnknownClusters(Mode mode) throws Exception {
    Library library = library(client(mode));
    LbdException error = assertThrows(UnknownClusterException.class, () -> get(library, url));
    assertEquals("unknown_cluster", error.code());
    assertEquals(cluster, error.cluster());
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void saysWhenLbdIsUnreachable(Mode mode) throws Exception {
    Upstream upstream = closing(new Upstream());
    LbdClientBuilder settings = LbdClient.builder().address("http://127.0.0.1:1").mode(mode);
    Library without = library(closing(settings.build()));
    assertThrows(UnavailableException.class, () -> get(without, url));
    Library with = library(closing(settings.fallback(upstream.address()).build()));
    assertEquals(200, get(with, url).status());
  }

  @Test
  void dropsWhatLbdDrops() throws Exception {
    Upstream upstream = closing(new Upstream());
    String half = "{\"category\":\"shed\",\"drop_percentage\":{\"numerator\":50}}";
    daemon.pushWithPolicy(cluster, "{\"drop_overloads\":[" + half + "]}", upstream.address());
    Library library = library(client(Mode.BATCH));
    int ok = 0;
    int dropped = 0;
    for (int i = 0; i < 100; i++) {
      try {
        assertEquals(200, get(library, url).status());
        ok++;
      } catch (DroppedException e) {
        assertTrue(e.getMessage().contains("shed"), e.getMessage());
        dropped++;
      }
    }
    assertTrue(ok > 10 && dropped > 10, ok + " and " + dropped);
    assertEquals(ok, upstream.requests.size());
  }

  @Test
  void usesConnectionsAgain() throws Exception {
    Upstream upstream = upstreams(Upstream::reply).get(0);
    Library library = library(client(Mode.BATCH));
    for (String method : List.of("GET", "HEAD", "POST", "GET")) {
      assertEquals(200, library.send(method, url, null, false, TIMEOUT).status());
    }
    assertEquals(1, upstream.peers.size());
  }

  @Test
  void survivesARestartOfLbd() throws Exception {
    Upstream upstream = upstreams(Upstream::reply).get(0);
    Library library = library(client(LbdClient.builder().maxAge(Duration.ofMillis(200))));
    assertEquals(200, get(library, url).status());
    daemon.stop();
    try {
      assertEquals(upstream.address(), get(library, url).body());
    } finally {
      daemon.start();
    }
    Upstream other = closing(new Upstream());
    daemon.push(cluster, other.address());
    Daemon.until(
        "the batch has the new endpoint", () -> get(library, url).body().equals(other.address()));
  }

  @Test
  void startsBeforeLbd() throws Exception {
    upstreams(Upstream::reply);
    daemon.stop();
    Library library;
    try {
      library = library(client(Mode.BATCH));
      assertThrows(UnavailableException.class, () -> get(library, url));
    } finally {
      daemon.start();
    }
    Daemon.until(
        "requests are sent",
        () -> {
          try {
            return get(library, url).status() == 200;
          } catch (UnavailableException e) {
            return false;
          }
        });
  }

  @ParameterizedTest
  @EnumSource(Mode.class)
  void isUsedByManyThreads(Mode mode) throws Exception {
    upstreams(Upstream::reply, Upstream::reply);
    LbdClient lbd = client(mode);
    Library library = library(lbd);
    ExecutorService threads = Executors.newFixedThreadPool(50);
    try {
      Callable<Integer> request = () -> get(library, url).status();
      List<Future<Integer>> results = new ArrayList<>();
      for (int i = 0; i < 500; i++) {
        results.add(threads.submit(request));
      }
      for (Future<Integer> result : results) {
        assertEquals(200, result.get());
      }
    } finally {
      threads.shutdown();
    }
    lbd.close();
    if (mode == Mode.BATCH) {
      assertEquals(500, daemon.reported(cluster, "success"));
    } else if (mode == Mode.LEASE) {
      assertEquals(0, daemon.inFlight(cluster));
      assertEquals(500, daemon.finished(cluster, "success"));
    }
  }

  @Test
  void verifiesTheNameOfTheHost(@TempDir Path directory) throws Exception {
    Certificates right = new Certificates(directory, "dns:" + cluster + ".lbd");
    List<String> addresses = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      addresses.add(closing(new Upstream(Upstream::reply, right.context())).address());
    }
    daemon.push(cluster, addresses.toArray(String[]::new));
    Library library = trusting(client(Mode.BATCH), right);
    Set<String> answered = new TreeSet<>();
    Daemon.until( // a first handshake may take so long that its endpoint is set aside
        "all answer",
        () -> {
          answered.add(get(library, "https://" + cluster + ".lbd/").body());
          return answered.equals(new TreeSet<>(addresses));
        });

    daemon.push(
        cluster, closing(new Upstream(Upstream::replyServerName, right.context())).address());
    Library named = trusting(client(Mode.BATCH), right);
    String asked = get(named, "https://" + cluster + ".lbd/").body();
    assertTrue(asked.contains("value=" + cluster + ".lbd"), asked);

    for (String name : List.of("dns:other.lbd", "ip:127.0.0.1")) { // the address of the endpoint
      Certificates wrong = new Certificates(directory, name);
      daemon.push(cluster, closing(new Upstream(Upstream::reply, wrong.context())).address());
      Library other = trusting(client(Mode.BATCH), wrong);
      IOException error =
          assertThrows(IOException.class, () -> get(other, "https://" + cluster + ".lbd/"), name);
      assertInstanceOf(javax.net.ssl.SSLException.class, error);
    }
  }
}
