package dev.lbd.client;

import java.io.IOException;
import java.net.Authenticator;
import java.net.CookieHandler;
import java.net.ProxySelector;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.PushPromiseHandler;
import java.net.http.WebSocket;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/**
 * An HttpClient that sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and all
 * others as usual. Safe for threads.
 *
 * <p>A request that gets no endpoint fails with an {@link LbdException}. The deadline of a request
 * is its timeout, else that of the {@link LbdClient}; it holds for all tries together, and to the
 * end of the body. A header Idempotency-Key permits retries of a POST or PATCH. A body of unknown
 * length is sent once.
 *
 * <p>Requests to endpoints use HTTP/1.1 and no proxy, do not follow redirects, and ignore push
 * promises. With https, the certificate of the endpoint has to be valid for the host of the URL.
 */
public final class LbdHttpClient extends HttpClient {
  private static final int MAX_KINDS = 1000;
  private static final int MAX_WAITING_THREADS = 64;
  private static final int CONNECT_STEP = 4;

  private final LbdClient lbd;
  private final Builder settings; // changed by make only
  private final Duration connectTimeout;
  private final HttpClient others;
  private final HttpClient direct; // without TLS, and with little time to connect
  // Requests in progress keep a client that is forgotten here.
  private final Map<Kind, HttpClient> kinds = new Recent<>(MAX_KINDS); // guarded by itself
  private final ThreadPoolExecutor waiting;

  /** What HttpClient has for all requests: the name of the server, or "", and the connect time. */
  private record Kind(String serverName, Duration connectTimeout) {}

  /**
   * Makes a client with the default settings of HttpClient.
   *
   * @param lbd gets the picks
   * @throws IllegalStateException java.net.http was in use before the first LbdClient, and Java was
   *     started without -Djdk.httpclient.allowRestrictedHeaders=host
   */
  public LbdHttpClient(LbdClient lbd) {
    this(lbd, HttpClient.newBuilder());
  }

  /**
   * Makes a client.
   *
   * @param lbd gets the picks
   * @param settings settings of the connections; not to be used afterwards
   * @throws IllegalStateException java.net.http was in use before the first LbdClient, and Java was
   *     started without -Djdk.httpclient.allowRestrictedHeaders=host
   */
  public LbdHttpClient(LbdClient lbd, Builder settings) {
    RestrictedHeaders.checkHost();
    this.lbd = lbd;
    this.others = settings.build();
    Duration connect = lbd.connectTimeout();
    Duration own = others.connectTimeout().orElse(connect);
    this.connectTimeout = own.compareTo(connect) < 0 ? own : connect;
    this.settings = settings.followRedirects(Redirect.NEVER).proxy(Builder.NO_PROXY);
    this.direct = make(new Kind("", atMost(Connects.MIN_LIMIT)));
    this.waiting =
        new ThreadPoolExecutor(
            MAX_WAITING_THREADS,
            MAX_WAITING_THREADS,
            10,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> Background.thread("lbd waiting", task));
    waiting.allowCoreThreadTimeOut(true);
  }

  @Override
  public <T> HttpResponse<T> send(HttpRequest request, BodyHandler<T> handler)
      throws IOException, InterruptedException {
    return send(request, handler, Ask.NOTHING);
  }

  /**
   * Sends a request that asks something of lbd, such as an endpoint for a hash key.
   *
   * @param request the request
   * @param handler makes the value of the body
   * @param ask what it asks
   * @param <T> type of that value
   * @return the response
   * @throws IOException as {@link HttpClient#send}; an {@link LbdException} if there is no endpoint
   * @throws InterruptedException the thread was interrupted
   */
  public <T> HttpResponse<T> send(HttpRequest request, BodyHandler<T> handler, Ask ask)
      throws IOException, InterruptedException {
    Optional<Host> host = lbd.hostOf(request.uri().getHost());
    return host.isEmpty()
        ? others.send(request, handler)
        : exchange(host.get(), request, handler, ask).send();
  }

  @Override
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, BodyHandler<T> handler) {
    return sendAsync(request, handler, Ask.NOTHING);
  }

  /**
   * Sends a request that asks something of lbd, without waiting for the response.
   *
   * @param request the request
   * @param handler makes the value of the body
   * @param ask what it asks
   * @param <T> type of that value
   * @return the response
   */
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, BodyHandler<T> handler, Ask ask) {
    return sendAsync(request, handler, null, ask);
  }

  @Override
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, BodyHandler<T> handler, PushPromiseHandler<T> pushes) {
    return sendAsync(request, handler, pushes, Ask.NOTHING);
  }

  private <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, BodyHandler<T> handler, PushPromiseHandler<T> pushes, Ask ask) {
    Optional<Host> host = lbd.hostOf(request.uri().getHost());
    if (host.isEmpty()) {
      return others.sendAsync(request, handler, pushes);
    }
    try {
      return new AsyncExchange<>(exchange(host.get(), request, handler, ask), waiting).start();
    } catch (LbdException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private <T> Exchange<T> exchange(Host host, HttpRequest request, BodyHandler<T> handler, Ask ask)
      throws LbdException {
    boolean idempotent =
        LbdClient.isIdempotent(request.method())
            || request.headers().firstValue("Idempotency-Key").isPresent();
    boolean known = request.bodyPublisher().map(body -> body.contentLength() >= 0).orElse(true);
    Deadline deadline = request.timeout().map(Deadline::after).orElseGet(lbd::defaultDeadline);
    Ask asks = host.ask(ask, request.uri().getRawPath(), request.headers()::allValues);
    Call call = lbd.call(host.name(), asks, deadline, idempotent && known).about(request);
    return new Exchange<>(attempt -> inner(request, attempt), call, request, handler);
  }

  /**
   * Returns the client for a try: TLS needs one for each name of a server, and so does each time to
   * connect, of which there are few.
   */
  private HttpClient inner(HttpRequest request, Attempt attempt) {
    Duration time = Connects.MIN_LIMIT;
    while (time.compareTo(attempt.connectTimeout()) < 0) {
      time = time.multipliedBy(CONNECT_STEP);
    }
    boolean https = "https".equalsIgnoreCase(request.uri().getScheme());
    if (!https && time.equals(Connects.MIN_LIMIT)) {
      return direct;
    }
    String name = https ? request.uri().getHost().toLowerCase(Locale.ROOT) : "";
    synchronized (kinds) {
      return kinds.computeIfAbsent(new Kind(name, atMost(time)), this::make);
    }
  }

  private Duration atMost(Duration time) {
    return time.compareTo(connectTimeout) < 0 ? time : connectTimeout;
  }

  private HttpClient make(Kind kind) {
    settings.connectTimeout(kind.connectTimeout);
    if (!kind.serverName.isEmpty()) {
      SSLParameters parameters = others.sslParameters();
      parameters.setServerNames(List.of(new SNIHostName(kind.serverName)));
      SSLContext context = new NamedContext(others.sslContext(), kind.serverName);
      settings.sslContext(context).sslParameters(parameters);
    }
    return settings.build();
  }

  @Override
  public Optional<CookieHandler> cookieHandler() {
    return others.cookieHandler();
  }

  @Override
  public Optional<Duration> connectTimeout() {
    return others.connectTimeout();
  }

  @Override
  public Redirect followRedirects() {
    return others.followRedirects();
  }

  @Override
  public Optional<ProxySelector> proxy() {
    return others.proxy();
  }

  @Override
  public SSLContext sslContext() {
    return others.sslContext();
  }

  @Override
  public SSLParameters sslParameters() {
    return others.sslParameters();
  }

  @Override
  public Optional<Authenticator> authenticator() {
    return others.authenticator();
  }

  @Override
  public Version version() {
    return others.version();
  }

  @Override
  public Optional<Executor> executor() {
    return others.executor();
  }

  @Override
  public WebSocket.Builder newWebSocketBuilder() {
    return others.newWebSocketBuilder();
  }
}
