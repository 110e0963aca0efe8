package dev.lbd.client;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Optional;
import javax.net.ssl.SSLSession;

/**
 * The response of an endpoint as the caller sees it.
 *
 * @param from what came
 * @param request what the caller sent
 * @param body what its handler made of the body
 */
record Answer<T>(HttpResponse<?> from, HttpRequest request, T body) implements HttpResponse<T> {
  @Override
  public int statusCode() {
    return from.statusCode();
  }

  @Override
  public Optional<HttpResponse<T>> previousResponse() {
    return Optional.empty();
  }

  @Override
  public HttpHeaders headers() {
    return from.headers();
  }

  @Override
  public Optional<SSLSession> sslSession() {
    return from.sslSession();
  }

  @Override
  public URI uri() {
    return request.uri();
  }

  @Override
  public HttpClient.Version version() {
    return from.version();
  }

  @Override
  public String toString() {
    return "(" + request.method() + " " + request.uri() + ") " + statusCode();
  }
}
