package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** LbdHttpClient, with sendAsync. */
class HttpClientAsyncTest extends LibraryTest {
  @Override
  Library library(LbdClient lbd) {
    return Library.async(new LbdHttpClient(lbd));
  }

  @Override
  Library trusting(LbdClient lbd, Certificates certificates) throws Exception {
    HttpClient.Builder settings = HttpClient.newBuilder().sslContext(certificates.context());
    return Library.async(new LbdHttpClient(lbd, settings));
  }

  @Test
  void doesNotWaitForTheCallsOfOthers() throws Exception {
    CountDownLatch answer = new CountDownLatch(1);
    Upstream upstream =
        upstreams(
                e -> {
                  answer.await();
                  Upstream.reply(e);
                })
            .get(0);
    HttpClient http = new LbdHttpClient(client(Mode.PICK));
    CompletableFuture<HttpResponse<String>> sent = send(http, TIMEOUT);
    Daemon.until("the request is at the endpoint", () -> upstream.requests.size() == 1);
    daemon.signal("STOP");
    try {
      var others =
          CompletableFuture.anyOf(
              Stream.generate(() -> send(http, Duration.ofMinutes(1)))
                  .limit(100) // more than there are threads
                  .toArray(CompletableFuture<?>[]::new));
      CompletableFuture<HttpResponse<String>> late = send(http, Duration.ofMillis(200));
      var error = assertThrows(ExecutionException.class, late::get);
      assertInstanceOf(HttpTimeoutException.class, error.getCause());
      assertFalse(others.isDone(), "the deadline does not wait for lbd");
      answer.countDown();
      assertEquals(upstream.address(), sent.get().body());
      assertFalse(others.isDone(), "the response does not wait for lbd");
    } finally {
      daemon.signal("CONT");
    }
  }

  private CompletableFuture<HttpResponse<String>> send(HttpClient http, Duration timeout) {
    HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(timeout).build();
    return http.sendAsync(request, BodyHandlers.ofString());
  }
}
