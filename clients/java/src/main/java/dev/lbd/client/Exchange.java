package dev.lbd.client;

import java.io.IOException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.ProtocolException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpTimeoutException;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import javax.net.ssl.SSLHandshakeException;

/** One request of java.net.http to a cluster, with all of its tries. */
final class Exchange<T> {
  private final Function<Attempt, HttpClient> inner;
  private final Call call;
  private final HttpRequest request;
  private final BodyHandler<T> handler;

  Exchange(
      Function<Attempt, HttpClient> inner, Call call, HttpRequest request, BodyHandler<T> handler) {
    this.inner = inner;
    this.call = call;
    this.request = request;
    this.handler = handler;
  }

  Call call() {
    return call;
  }

  /** Sends the request and waits for the response, as far as its handler does. */
  HttpResponse<T> send() throws IOException, InterruptedException {
    Attempt attempt = call.first();
    while (true) {
      HttpResponse<Body<T>> response = null;
      Optional<Attempt> next;
      try {
        response = inner.apply(attempt).send(to(attempt), bodyOf(attempt));
        next = Call.isRetried(response.statusCode()) ? call.retry() : Optional.empty();
      } catch (IOException e) {
        next = failed(attempt, e) ? call.retry() : Optional.empty();
        if (next.isEmpty()) {
          throw shown(attempt, e);
        }
      } catch (InterruptedException | RuntimeException | Error e) {
        attempt.close();
        if (response != null) {
          response.body().cancel();
        }
        throw e;
      }
      if (next.isEmpty()) {
        return await(response);
      }
      if (response != null) {
        response.body().discard();
      }
      attempt = next.get();
    }
  }

  /** Sends one try. The response is there with its value, or with its status if that is retried. */
  CompletableFuture<HttpResponse<Body<T>>> sendAsync(Attempt attempt) throws IOException {
    return inner.apply(attempt).sendAsync(to(attempt), bodyOf(attempt));
  }

  private BodyHandler<Body<T>> bodyOf(Attempt attempt) {
    return info -> {
      attempt.answered(info.statusCode()); // an empty body may end before the response is there
      Body<T> body = new Body<>(info, handler, attempt, call.deadline());
      if (!Call.isRetried(info.statusCode())) {
        body.deliver(); // here, because each change of threads takes time
      }
      return body;
    };
  }

  private HttpRequest to(Attempt attempt) throws HttpTimeoutException {
    if (call.deadline().passed()) {
      HttpTimeoutException late = new HttpTimeoutException("request timed out");
      attempt.withdraw(late);
      throw late;
    }
    URI uri = request.uri();
    String path = uri.getRawPath() == null || uri.getRawPath().isEmpty() ? "/" : uri.getRawPath();
    String query = uri.getRawQuery() == null ? "" : "?" + uri.getRawQuery();
    HttpRequest.Builder copy =
        HttpRequest.newBuilder(request, (name, value) -> true)
            .uri(URI.create(uri.getScheme() + "://" + attempt.address() + path + query))
            .version(HttpClient.Version.HTTP_1_1); // with HTTP/2, the address would be the Host
    if (request.headers().firstValue("Host").isEmpty()) {
      String port = uri.getPort() < 0 ? "" : ":" + uri.getPort();
      copy.header("Host", uri.getHost() + port);
    }
    if (call.deadline().isSet()) {
      copy.timeout(call.deadline().left().plusNanos(1)); // 0 is not valid
    }
    return copy.build();
  }

  /** Ends an attempt without a response, and returns whether another one is permitted. */
  boolean failed(Attempt attempt, Throwable error) {
    boolean late = call.deadline().passed();
    if (late && isUnsent(error)) {
      attempt.late(error);
      return false;
    }
    if (isUnsent(error)) {
      return attempt.unsent(error, error instanceof HttpConnectTimeoutException);
    }
    return attempt.failed(error)
        && !late
        && error instanceof IOException
        && !(error instanceof HttpTimeoutException)
        && !isProtocol(error);
  }

  /** Returns whether there was no connection. The body of the request was not read then. */
  private static boolean isUnsent(Throwable error) {
    return error instanceof HttpConnectTimeoutException
        || error instanceof ConnectException
        || error instanceof SSLHandshakeException
        || error.getCause() instanceof NoRouteToHostException;
  }

  /** Returns the error for the caller: that of a connection only if there was time left. */
  IOException shown(Attempt attempt, IOException error) {
    if (error instanceof HttpConnectTimeoutException && call.deadline().passed()) {
      return new HttpTimeoutException("request timed out");
    }
    if (!(error instanceof ConnectException) || error.getMessage() != null) {
      return error;
    }
    ConnectException named = new ConnectException("cannot connect to " + attempt.address());
    named.initCause(error); // HttpClient says nothing
    return named;
  }

  private static boolean isProtocol(Throwable error) {
    return error instanceof ProtocolException || error.getCause() instanceof ProtocolException;
  }

  /** Returns the response for the caller, which is not retried. */
  CompletionStage<HttpResponse<T>> answer(HttpResponse<Body<T>> response) {
    Body<T> body = response.body();
    if (body.value() == null) {
      body.deliver();
    }
    return body.value().thenApply(value -> new Answer<>(response, request, value));
  }

  private HttpResponse<T> await(HttpResponse<Body<T>> response)
      throws IOException, InterruptedException {
    try {
      return answer(response).toCompletableFuture().get();
    } catch (InterruptedException e) {
      response.body().cancel();
      throw e;
    } catch (ExecutionException e) {
      if (e.getCause() instanceof IOException cause) {
        throw cause;
      }
      if (e.getCause() instanceof RuntimeException cause) {
        throw cause;
      }
      throw new IOException(e.getCause().getMessage(), e.getCause());
    }
  }
}
