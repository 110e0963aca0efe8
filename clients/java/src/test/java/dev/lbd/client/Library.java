package dev.lbd.client;

import dev.lbd.client.okhttp.LbdOkHttp;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;

/** An HTTP library, with a client of lbd, or without one. */
interface Library {
  record Response(int status, String body) {}

  /** Sends a request with headers that asks something of lbd. Body and timeout may be null. */
  Response send(
      String method,
      String url,
      String body,
      Map<String, String> headers,
      Duration timeout,
      Ask ask)
      throws IOException, InterruptedException;

  /** Sends a request that asks nothing. */
  default Response send(
      String method, String url, String body, boolean idempotent, Duration timeout)
      throws IOException, InterruptedException {
    Map<String, String> headers = idempotent ? Map.of("Idempotency-Key", "1") : Map.of();
    return send(method, url, body, headers, timeout, Ask.NOTHING);
  }

  /** Returns a library by its name for the runner, or null. Without lbd, requests go to the URL. */
  static Library of(String name, LbdClient lbd) {
    return switch (name) {
      case "core" -> sync(lbd == null ? HttpClient.newHttpClient() : new LbdHttpClient(lbd));
      case "core-async" -> async(lbd == null ? HttpClient.newHttpClient() : new LbdHttpClient(lbd));
      case "okhttp" -> okhttp(lbd == null ? new OkHttpClient() : LbdOkHttp.create(lbd));
      default -> null;
    };
  }

  static Library sync(HttpClient http) {
    return (method, url, body, headers, timeout, ask) -> {
      HttpRequest request = request(method, url, body, headers, timeout);
      HttpResponse<String> response =
          http instanceof LbdHttpClient lbd
              ? lbd.send(request, BodyHandlers.ofString(), ask)
              : http.send(request, BodyHandlers.ofString());
      return new Response(response.statusCode(), response.body());
    };
  }

  static Library async(HttpClient http) {
    return (method, url, body, headers, timeout, ask) -> {
      HttpRequest request = request(method, url, body, headers, timeout);
      try {
        HttpResponse<String> response =
            (http instanceof LbdHttpClient lbd
                    ? lbd.sendAsync(request, BodyHandlers.ofString(), ask)
                    : http.sendAsync(request, BodyHandlers.ofString()))
                .get();
        return new Response(response.statusCode(), response.body());
      } catch (ExecutionException e) {
        if (e.getCause() instanceof IOException cause) {
          throw cause;
        }
        throw new IllegalStateException(e.getCause());
      }
    };
  }

  private static HttpRequest request(
      String method, String url, String body, Map<String, String> headers, Duration timeout) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url));
    request.method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body));
    headers.forEach(request::header);
    if (timeout != null) {
      request.timeout(timeout);
    }
    return request.build();
  }

  static Library okhttp(OkHttpClient http) {
    return (method, url, body, headers, timeout, ask) -> {
      boolean required = method.equals("POST") || method.equals("PUT") || method.equals("PATCH");
      String content = body == null && required ? "" : body;
      Request.Builder request = new Request.Builder().url(url);
      request.method(method, content == null ? null : RequestBody.create(content, null));
      headers.forEach(request::addHeader);
      request.tag(Ask.class, ask);
      okhttp3.Call call = http.newCall(request.build());
      if (timeout != null) {
        call.timeout().timeout(timeout.toNanos(), TimeUnit.NANOSECONDS);
      }
      try (okhttp3.Response response = call.execute()) {
        return new Response(response.code(), response.body().string());
      }
    };
  }
}
