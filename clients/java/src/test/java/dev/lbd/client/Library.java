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
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;

/** An HTTP library, with a client of lbd, or without one. */
interface Library {
  record Response(int status, String body) {}

  /** Sends a request. Body and timeout may be null. */
  Response send(String method, String url, String body, boolean idempotent, Duration timeout)
      throws IOException, InterruptedException;

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
    return (method, url, body, idempotent, timeout) -> {
      HttpRequest request = request(method, url, body, idempotent, timeout);
      HttpResponse<String> response = http.send(request, BodyHandlers.ofString());
      return new Response(response.statusCode(), response.body());
    };
  }

  static Library async(HttpClient http) {
    return (method, url, body, idempotent, timeout) -> {
      HttpRequest request = request(method, url, body, idempotent, timeout);
      try {
        HttpResponse<String> response = http.sendAsync(request, BodyHandlers.ofString()).get();
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
      String method, String url, String body, boolean idempotent, Duration timeout) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url));
    request.method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body));
    if (idempotent) {
      request.header("Idempotency-Key", "1");
    }
    if (timeout != null) {
      request.timeout(timeout);
    }
    return request.build();
  }

  static Library okhttp(OkHttpClient http) {
    return (method, url, body, idempotent, timeout) -> {
      boolean required = method.equals("POST") || method.equals("PUT") || method.equals("PATCH");
      String content = body == null && required ? "" : body;
      Request.Builder request = new Request.Builder().url(url);
      request.method(method, content == null ? null : RequestBody.create(content, null));
      if (idempotent) {
        request.header("Idempotency-Key", "1");
      }
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
