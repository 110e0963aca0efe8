package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** LbdHttpClient, with send. */
class HttpClientTest extends LibraryTest {
  @Override
  Library library(LbdClient lbd) {
    return Library.sync(new LbdHttpClient(lbd));
  }

  @Override
  Library trusting(LbdClient lbd, Certificates certificates) throws Exception {
    HttpClient.Builder settings = HttpClient.newBuilder().sslContext(certificates.context());
    return Library.sync(new LbdHttpClient(lbd, settings));
  }

  private HttpRequest.Builder request() {
    return HttpRequest.newBuilder(URI.create(url)).timeout(TIMEOUT);
  }

  @Test
  void isInFlightUntilTheBodyIsReadOrClosed() throws Exception {
    upstreams(e -> Upstream.reply(e, 200, "x".repeat(4 << 20))); // more than is read ahead
    HttpClient http = new LbdHttpClient(client(Mode.LEASE));
    HttpResponse<InputStream> response = http.send(request().build(), BodyHandlers.ofInputStream());
    assertEquals(1, daemon.inFlight(cluster));
    response.body().readAllBytes();
    Daemon.until("the lease is ended after the body", () -> daemon.inFlight(cluster) == 0);
    response = http.send(request().build(), BodyHandlers.ofInputStream());
    assertEquals(1, daemon.inFlight(cluster));
    response.body().close();
    Daemon.until("the lease is ended by close", () -> daemon.inFlight(cluster) == 0);
    assertEquals(2, daemon.finished(cluster, "success"));
  }

  @Test
  void renewsTheLeaseOfALongRequest() throws Exception {
    upstreams(
        e -> {
          if (e.getRequestURI().getPath().equals("/short")) {
            Upstream.reply(e);
          } else {
            Upstream.drip(e);
          }
        });
    LbdClientBuilder settings = LbdClient.builder().mode(Mode.LEASE).timeout(null);
    HttpClient http = new LbdHttpClient(client(settings.ttl(Duration.ofSeconds(2))));
    HttpRequest before = HttpRequest.newBuilder(URI.create(url + "/short")).build();
    http.send(before, BodyHandlers.ofString());
    Daemon.until("there is no lease to renew", () -> daemon.finished(cluster, "success") == 1);
    HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
    long began = System.nanoTime();
    try (InputStream body = http.send(request, BodyHandlers.ofInputStream()).body()) {
      while (System.nanoTime() - began < 5_000_000_000L) {
        assertTrue(body.read() >= 0);
        assertEquals(1, daemon.inFlight(cluster));
      }
    }
    Daemon.until("the lease is ended by close", () -> daemon.inFlight(cluster) == 0);
  }

  @Test
  void endsABodyThatNobodyReadsAtTheDeadline() throws Exception {
    upstreams(Upstream::drip);
    HttpClient http = new LbdHttpClient(client(Mode.LEASE));
    HttpRequest request = request().timeout(Duration.ofSeconds(2)).build();
    HttpResponse<InputStream> response = http.send(request, BodyHandlers.ofInputStream());
    Daemon.until("the lease is ended", () -> daemon.finished(cluster, "success") == 1);
    IOException error = assertThrows(IOException.class, () -> response.body().readAllBytes());
    assertInstanceOf(HttpTimeoutException.class, error.getCause());
  }

  @Test
  void deliversTheBodyToEachHandler() throws Exception {
    Upstream upstream = upstreams(Upstream::reply).get(0);
    HttpClient http = new LbdHttpClient(client(Mode.BATCH));
    HttpRequest request = request().build();
    assertEquals(
        upstream.address(), new String(http.send(request, BodyHandlers.ofByteArray()).body()));
    assertEquals(null, http.send(request, BodyHandlers.discarding()).body());
    try (Stream<String> lines = http.send(request, BodyHandlers.ofLines()).body()) {
      assertEquals(1, lines.count());
    }
    assertEquals("x", http.send(request, BodyHandlers.replacing("x")).body());
    HttpResponse<String> response = http.send(request, BodyHandlers.ofString());
    assertEquals(request, response.request());
    assertEquals(request.uri(), response.uri());
  }

  @Test
  void passesErrorsOfHandlersOn() throws Exception {
    upstreams(Upstream::reply);
    LbdClient lbd = client(Mode.LEASE);
    HttpClient http = new LbdHttpClient(lbd);
    assertThrows(
        IllegalArgumentException.class,
        () ->
            http.send(
                request().build(),
                info -> {
                  throw new IllegalArgumentException("no");
                }));
    Daemon.until("the lease is ended", () -> daemon.finished(cluster, "success") == 1);
  }

  @Test
  void sendsABodyOfUnknownLengthOnce() throws Exception {
    List<Upstream> both = upstreams(Upstream.status(503), Upstream.status(503));
    HttpClient http = new LbdHttpClient(client(Mode.BATCH));
    InputStream body = InputStream.nullInputStream();
    HttpRequest request = request().PUT(BodyPublishers.ofInputStream(() -> body)).build();
    assertEquals(503, http.send(request, BodyHandlers.ofString()).statusCode());
    assertEquals(1, both.get(0).requests.size() + both.get(1).requests.size());
  }

  @Test
  void cancelsARequest() throws Exception {
    Upstream upstream = upstreams(e -> Thread.sleep(60_000)).get(0);
    LbdClientBuilder settings = LbdClient.builder().reportInterval(Duration.ofMillis(200));
    HttpClient http = new LbdHttpClient(client(settings));
    CompletableFuture<HttpResponse<String>> sent =
        http.sendAsync(request().timeout(Duration.ofMinutes(1)).build(), BodyHandlers.ofString());
    Thread thread =
        new Thread(
            () -> {
              try {
                http.send(
                    request().timeout(Duration.ofMinutes(1)).build(), BodyHandlers.ofString());
              } catch (IOException | InterruptedException e) {
                // expected
              }
            });
    thread.start();
    Daemon.until("both have arrived", () -> upstream.requests.size() == 2);
    sent.cancel(true);
    thread.interrupt();
    thread.join();
    Daemon.until("both are reported", () -> daemon.reported(cluster, "cancelled") == 2);
  }

  @Test
  void returnsRedirects() throws Exception {
    upstreams(
        e -> {
          e.getResponseHeaders().set("Location", url + "/there");
          Upstream.reply(e, 302, "");
        });
    HttpClient.Builder settings =
        HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS);
    HttpClient http = new LbdHttpClient(client(Mode.BATCH), settings);
    assertEquals(302, http.send(request().build(), BodyHandlers.ofString()).statusCode());
  }

  @Test
  void keepsNothingForUnknownClusters() throws Exception {
    HttpClient http = new LbdHttpClient(client(Mode.PICK));
    long before = clients();
    for (int i = 0; i < 20; i++) {
      HttpRequest request =
          HttpRequest.newBuilder(URI.create("https://unknown-" + i + ".lbd/")).build();
      assertThrows(
          UnknownClusterException.class, () -> http.send(request, BodyHandlers.discarding()));
    }
    assertTrue(clients() < before + 20, "each has a thread");
  }

  private static long clients() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().contains("SelectorManager"))
        .count();
  }

  @Test
  void keepsTheHostsThatWereUsedLast() {
    List<String> made = new ArrayList<>();
    Map<String, Boolean> recent = new Recent<>(2);
    for (String name : List.of("a", "b", "a", "c", "a", "b")) {
      assertTrue(recent.computeIfAbsent(name, made::add));
    }
    assertEquals(List.of("a", "b", "c", "b"), made);
  }

  @Test
  void tellsTheStateOfLbd() throws Exception {
    List<State> states = new CopyOnWriteArrayList<>();
    LbdListener listener =
        new LbdListener() {
          @Override
          public void onState(State state) {
            states.add(state);
          }
        };
    Upstream upstream = closing(new Upstream());
    try (Daemon own = new Daemon()) {
      own.push(cluster, upstream.address());
      LbdClientBuilder settings = LbdClient.builder().address(own.lbd()).listener(listener);
      settings.maxAge(Duration.ofMillis(100)).staleFor(Duration.ofMillis(300));
      HttpClient http = new LbdHttpClient(closing(settings.build()));
      assertTrue(isAnswered(http));
      own.stop();
      Daemon.until("requests fail", () -> !isAnswered(http));
      assertEquals(List.of(State.UNREACHABLE, State.STALE), states);
      own.start();
      Daemon.until("they are answered again", () -> isAnswered(http));
    }
    List<State> all = List.of(State.UNREACHABLE, State.STALE, State.RECOVERED);
    assertEquals(all, states.subList(0, 3));
  }

  private boolean isAnswered(HttpClient http) throws Exception {
    try {
      return http.send(request().build(), BodyHandlers.ofString()).statusCode() == 200;
    } catch (UnavailableException e) {
      return false;
    }
  }

  @Test
  void usesHttp11() throws Exception {
    upstreams(e -> Upstream.reply(e, 200, e.getRequestHeaders().keySet().toString()));
    HttpClient http = new LbdHttpClient(client(Mode.BATCH));
    HttpRequest request = request().version(HttpClient.Version.HTTP_2).build();
    String headers = http.send(request, BodyHandlers.ofString()).body();
    assertFalse(headers.contains("Http2-settings"), headers);
  }
}
