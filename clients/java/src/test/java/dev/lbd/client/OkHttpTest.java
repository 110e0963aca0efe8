package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.lbd.client.okhttp.LbdOkHttp;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLPeerUnverifiedException;
import okhttp3.CertificatePinner;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Clients of OkHttp. */
class OkHttpTest extends LibraryTest {
  @Override
  Library library(LbdClient lbd) {
    return Library.okhttp(LbdOkHttp.create(lbd));
  }

  @Override
  Library trusting(LbdClient lbd, Certificates certificates) throws Exception {
    SSLContext context = certificates.context();
    OkHttpClient client =
        new OkHttpClient.Builder()
            .sslSocketFactory(context.getSocketFactory(), certificates.trustManager())
            .readTimeout(1, TimeUnit.MINUTES)
            .build();
    return Library.okhttp(LbdOkHttp.with(client, lbd));
  }

  private Request request(String path) {
    return new Request.Builder().url(url + path).build();
  }

  @Test
  void isInFlightUntilTheBodyIsReadOrClosed() throws Exception {
    upstreams(Upstream::reply);
    OkHttpClient http = LbdOkHttp.create(client(Mode.LEASE));
    try (Response response = http.newCall(request("/")).execute()) {
      assertEquals(1, daemon.inFlight(cluster));
      response.body().bytes();
      Daemon.until("the lease is ended after the body", () -> daemon.inFlight(cluster) == 0);
    }
    Response response = http.newCall(request("/")).execute();
    assertEquals(1, daemon.inFlight(cluster));
    assertEquals(url + "/", response.request().url().toString());
    response.close();
    Daemon.until("the lease is ended by close", () -> daemon.inFlight(cluster) == 0);
    assertEquals(2, daemon.finished(cluster, "success"));
  }

  @Test
  void endsTheLeaseOfAResponseThatWasForgotten() throws Exception {
    upstreams(Upstream::reply);
    OkHttpClient http = LbdOkHttp.create(client(Mode.LEASE));
    Response held = http.newCall(request("/")).execute();
    http.newCall(request("/")).execute();
    assertEquals(2, daemon.inFlight(cluster));
    Daemon.until(
        "the lease is ended",
        () -> {
          System.gc();
          return daemon.inFlight(cluster) == 1;
        });
    System.gc();
    assertEquals(1, daemon.inFlight(cluster));
    held.close();
  }

  @Test
  void endsTheLeaseOfAResponseWithoutBody() throws Exception {
    upstreams(Upstream::reply);
    OkHttpClient http = LbdOkHttp.create(client(Mode.LEASE));
    http.newCall(request("/").newBuilder().head().build()).execute();
    Daemon.until("the lease is ended", () -> daemon.finished(cluster, "success") == 1);
  }

  @Test
  void followsRedirectsWithinTheCluster() throws Exception {
    List<Upstream> both =
        upstreams(
            e -> {
              if (e.getRequestURI().getPath().equals("/there")) {
                Upstream.reply(e);
                return;
              }
              String to = e.getRequestURI().getPath().equals("/out") ? "http://other.test" : url;
              e.getResponseHeaders().set("Location", to + "/there?a=b");
              Upstream.reply(e, 302, "");
            });
    OkHttpClient http = LbdOkHttp.create(client(Mode.BATCH));
    try (Response response = http.newCall(request("/")).execute()) {
      assertEquals(200, response.code());
    }
    assertEquals("GET /there?a=b " + cluster + ".lbd ", both.get(0).requests.get(1));
    try (Response response = http.newCall(request("/out")).execute()) {
      assertEquals(302, response.code());
      assertEquals("http://other.test/there?a=b", response.header("Location"));
    }
  }

  @Test
  void sendsAPostAgainWithCredentials() throws Exception {
    Upstream upstream =
        upstreams(
                e -> {
                  boolean known = e.getRequestHeaders().containsKey("Authorization");
                  Upstream.reply(e, known ? 200 : 401, "x");
                })
            .get(0);
    OkHttpClient settings =
        new OkHttpClient.Builder()
            .authenticator(
                (route, response) ->
                    response.request().newBuilder().header("Authorization", "Basic x").build())
            .build();
    Library library = Library.okhttp(LbdOkHttp.with(settings, client(Mode.BATCH)));
    assertEquals(200, library.send("POST", url, "x", false, TIMEOUT).status());
    assertEquals(2, upstream.requests.size());
  }

  @Test
  void reportsACallThatIsCancelled() throws Exception {
    upstreams(e -> Thread.sleep(60_000));
    LbdClient lbd = client(Mode.LEASE);
    okhttp3.Call call = LbdOkHttp.create(lbd).newCall(request("/"));
    Thread thread = new Thread(() -> assertThrows(IOException.class, call::execute));
    thread.start();
    Daemon.until("the request is in flight", () -> daemon.inFlight(cluster) == 1);
    call.cancel();
    thread.join();
    Daemon.until("the lease is ended", () -> daemon.finished(cluster, "cancelled") == 1);
  }

  @Test
  void usesNoProxyForEndpoints() throws Exception {
    upstreams(Upstream::reply);
    Proxy proxy = new Proxy(Proxy.Type.HTTP, new InetSocketAddress("127.0.0.1", 1));
    OkHttpClient settings = new OkHttpClient.Builder().proxy(proxy).build();
    OkHttpClient http = LbdOkHttp.with(settings, client(Mode.BATCH));
    try (Response response = http.newCall(request("/")).execute()) {
      assertTrue(response.isSuccessful());
    }
    Request other = new Request.Builder().url("http://localhost:2/").build();
    IOException error = assertThrows(IOException.class, () -> http.newCall(other).execute());
    assertTrue(error.getMessage().contains("127.0.0.1:1"), error.getMessage());
  }

  @Test
  void doesNotResolveNamesThatLookLikeEndpoints() {
    OkHttpClient http = LbdOkHttp.create(client(Mode.BATCH));
    String name = "lbd-0011223344556677-7f000001.example.invalid";
    assertThrows(IOException.class, () -> http.dns().lookup(name));
  }

  @Test
  void sharesThePoolOfItsSettings() {
    OkHttpClient settings = new OkHttpClient.Builder().readTimeout(7, TimeUnit.SECONDS).build();
    OkHttpClient http = LbdOkHttp.with(settings, client(Mode.BATCH));
    assertEquals(settings.connectionPool(), http.connectionPool());
    assertEquals(7000, http.readTimeoutMillis());
    assertFalse(http.interceptors().isEmpty());
  }

  @Test
  void checksThePinsOfTheHost(@TempDir Path directory) throws Exception {
    Certificates certificates = new Certificates(directory, "dns:" + cluster + ".lbd");
    Upstream upstream = closing(new Upstream(Upstream::reply, certificates.context()));
    daemon.push(cluster, upstream.address());
    String right = CertificatePinner.pin(certificates.trustManager().getAcceptedIssuers()[0]);
    for (String pattern : List.of(cluster + ".lbd", "*.lbd")) {
      assertEquals(200, getPinned(certificates, pattern, right));
      String wrong = "sha256/" + "A".repeat(43) + "=";
      assertThrows(
          SSLPeerUnverifiedException.class, () -> getPinned(certificates, pattern, wrong), pattern);
    }
    assertEquals(2, upstream.requests.size());
  }

  private int getPinned(Certificates certificates, String pattern, String pin) throws Exception {
    SSLContext context = certificates.context();
    OkHttpClient settings =
        new OkHttpClient.Builder()
            .sslSocketFactory(context.getSocketFactory(), certificates.trustManager())
            .certificatePinner(new CertificatePinner.Builder().add(pattern, pin).build())
            .build();
    Library library = Library.okhttp(LbdOkHttp.with(settings, client(Mode.BATCH)));
    return library.send("GET", "https://" + cluster + ".lbd/", null, false, TIMEOUT).status();
  }

  @Test
  void sendsNothingAgainByItself() throws Exception {
    Upstream upstream =
        upstreams(
                e -> {
                  switch (e.getRequestMethod()) {
                    case "GET" -> Upstream.reply(e);
                    case "PURGE" -> Upstream.reset(e);
                    default -> {
                      e.getResponseHeaders().set("Retry-After", "0");
                      Upstream.reply(e, 503, "");
                    }
                  }
                })
            .get(0);
    OkHttpClient http = LbdOkHttp.create(client(Mode.BATCH));
    try (Response response = http.newCall(request("/")).execute()) {
      assertEquals(200, response.code());
      assertTrue(response.body().string().length() > 0, "the connection can be used again");
    }
    Request purge = request("/").newBuilder().method("PURGE", null).build();
    assertThrows(IOException.class, () -> http.newCall(purge).execute());
    Request post = request("/").newBuilder().post(RequestBody.create("x", null)).build();
    try (Response response = http.newCall(post).execute()) {
      assertEquals(503, response.code());
      assertEquals("0", response.header("Retry-After"));
    }
    assertEquals(3, upstream.requests.size(), upstream.requests.toString());
  }
}
