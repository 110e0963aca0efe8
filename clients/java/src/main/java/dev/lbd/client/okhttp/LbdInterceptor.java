package dev.lbd.client.okhttp;

import dev.lbd.client.Ask;
import dev.lbd.client.Attempt;
import dev.lbd.client.Call;
import dev.lbd.client.Deadline;
import dev.lbd.client.Host;
import dev.lbd.client.LbdClient;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.ProtocolException;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import javax.net.ssl.SSLException;
import okhttp3.CertificatePinner;
import okhttp3.Connection;
import okhttp3.Handshake;
import okhttp3.HttpUrl;
import okhttp3.Interceptor;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;

/** Sends the requests of a client to the endpoints that lbd picks. */
final class LbdInterceptor implements Interceptor {
  private static final Duration TIMER_TOLERANCE = Duration.ofMillis(50);
  private static final Pattern NOT_CONNECTED = // of a socket, or of OkHttp
      Pattern.compile("(?i)connect timed out|failed to connect .*");
  private static final int MAX_CLOSED = 8; // connections to one address
  private static final RequestBody NO_BODY = RequestBody.create(new byte[0], null);

  private final LbdClient lbd;
  private final EndpointHosts hosts;
  private final CertificatePinner pins;

  /** One try: the URL that the caller asked for, and how far the try came. */
  private static final class Try {
    private final HttpUrl url;
    private volatile boolean connected;
    private volatile boolean answered;

    Try(HttpUrl url) {
      this.url = url;
    }
  }

  /** The endpoint has closed a connection before anything was sent. */
  private static final class ClosedException extends SocketException {
    private static final long serialVersionUID = 1L;

    ClosedException() {
      super("the endpoint has closed the connection");
    }
  }

  LbdInterceptor(LbdClient lbd, EndpointHosts hosts, CertificatePinner pins) {
    this.lbd = lbd;
    this.hosts = hosts;
    this.pins = pins;
  }

  @Override
  public Response intercept(Chain chain) throws IOException {
    Request request = chain.request();
    Optional<Host> host = lbd.hostOf(request.url().host());
    if (host.isEmpty()) {
      return chain.proceed(request);
    }
    Ask ask = host.get().ask(request.tag(Ask.class), request.url().encodedPath(), request::headers);
    try {
      Call call = lbd.call(host.get().name(), ask, deadline(chain), isRepeatable(request));
      return send(chain, call.about(request));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while lbd was asked");
    }
  }

  private Deadline deadline(Chain chain) {
    long nanos = chain.call().timeout().timeoutNanos();
    return nanos > 0 ? Deadline.after(Duration.ofNanos(nanos)) : lbd.defaultDeadline();
  }

  private static boolean isRepeatable(Request request) {
    RequestBody body = request.body();
    return (LbdClient.isIdempotent(request.method()) || request.header("Idempotency-Key") != null)
        && (body == null || !(body.isOneShot() || body.isDuplex()));
  }

  private Response send(Chain chain, Call call) throws IOException, InterruptedException {
    Attempt attempt = call.first();
    int closed = 0;
    while (true) {
      Try sent = new Try(chain.request().url());
      Response response = null;
      Optional<Attempt> next;
      try {
        if (call.deadline().passed()) {
          InterruptedIOException late = new InterruptedIOException("timeout");
          attempt.withdraw(late);
          throw late;
        }
        response = limited(chain, call, attempt).proceed(to(attempt, chain.request(), sent));
        if (chain.call().isCanceled()) { // an endpoint may answer while OkHttp closes the socket
          response.close();
          throw new IOException("Canceled");
        }
        attempt.answered(response.code());
        next =
            Call.isRetried(response.code())
                ? call.retry(chain.call()::isCanceled)
                : Optional.empty();
      } catch (IOException e) {
        if (e instanceof ClosedException && ++closed < MAX_CLOSED) {
          continue; // with another connection: OkHttp has forgotten this one
        }
        next =
            failed(chain, call, attempt, sent, e)
                ? call.retry(chain.call()::isCanceled)
                : Optional.empty();
        if (next.isEmpty()) {
          boolean timeout = e instanceof SocketTimeoutException && isLate(call);
          throw timeout ? new InterruptedIOException("timeout") : e;
        }
      } catch (InterruptedException | RuntimeException | Error e) {
        attempt.close();
        if (response != null) {
          response.close();
        }
        throw e;
      }
      if (next.isEmpty()) {
        Response shown = FollowUps.show(response).newBuilder().request(chain.request()).build();
        return CountedBody.count(shown, attempt);
      }
      if (response != null) {
        attempt.close();
        response.close();
      }
      attempt = next.get();
      closed = 0;
    }
  }

  private Request to(Attempt attempt, Request request, Try sent) throws IOException {
    Request.Builder builder =
        request.newBuilder().url(hosts.at(request.url(), attempt.address())).tag(Try.class, sent);
    if (!isRepeatable(request)) {
      RequestBody body = request.body() == null ? NO_BODY : request.body();
      builder.method(request.method(), new OnceBody(body, () -> sent.answered));
    }
    if (request.header("Host") == null) {
      HttpUrl url = request.url();
      boolean usual = url.port() == HttpUrl.defaultPort(url.scheme());
      String host = url.host().contains(":") ? "[" + url.host() + "]" : url.host();
      builder.header("Host", usual ? host : host + ":" + url.port());
    }
    return builder.build();
  }

  /** Limits each step of a try to the time that is left. */
  private static Chain limited(Chain chain, Call call, Attempt attempt) {
    long left = Math.min(Integer.MAX_VALUE, call.deadline().left().toMillis() + 1);
    long connect = Math.min(left, Math.max(1, attempt.connectTimeout().toMillis()));
    return chain
        .withConnectTimeout(least(chain.connectTimeoutMillis(), connect), TimeUnit.MILLISECONDS)
        .withReadTimeout(least(chain.readTimeoutMillis(), left), TimeUnit.MILLISECONDS)
        .withWriteTimeout(least(chain.writeTimeoutMillis(), left), TimeUnit.MILLISECONDS);
  }

  /** Returns the lesser of two timeouts, of which the first may be 0 for none. */
  private static int least(int timeout, long left) {
    return (int) (timeout == 0 ? left : Math.min(timeout, left));
  }

  /** Ends an attempt without a response, and returns whether another one is permitted. */
  private static boolean failed(
      Chain chain, Call call, Attempt attempt, Try sent, IOException error) {
    // OkHttp does not say whether the caller or the call timeout has canceled the call.
    boolean late = isLate(call);
    if (chain.call().isCanceled() && !late) {
      attempt.close();
      return false;
    }
    if (late && !sent.connected) {
      attempt.late(error);
      return false;
    }
    if (!late && isUnsent(sent, error)) {
      return attempt.unsent(error, error instanceof SocketTimeoutException);
    }
    return attempt.failed(error)
        && !late
        && !(error instanceof ProtocolException)
        && !(error instanceof InterruptedIOException);
  }

  private static boolean isLate(Call call) {
    return call.deadline().left().compareTo(TIMER_TOLERANCE) < 0;
  }

  /**
   * Returns whether there was no connection. OkHttp may have connected again after another one had
   * ended, but sends only a request again that is idempotent, or was answered.
   */
  private static boolean isUnsent(Try sent, IOException error) {
    if (sent.connected) {
      String message = String.valueOf(error.getMessage());
      return error instanceof ConnectException
          || (error instanceof SocketTimeoutException && NOT_CONNECTED.matcher(message).matches());
    }
    return error instanceof SocketException
        || error instanceof SSLException
        || error instanceof SocketTimeoutException;
  }

  /**
   * Returns whether the peer has closed a connection. OkHttp looks after 10 s only, and a request
   * that is not idempotent cannot be sent again. The shortest read of Java takes 1 ms.
   */
  private static boolean isClosed(Connection connection) throws SocketException {
    if (connection.protocol() != Protocol.HTTP_1_1) {
      return false; // OkHttp reads from those of HTTP/2 all the time
    }
    Socket socket = connection.socket();
    int timeout = socket.getSoTimeout();
    try {
      socket.setSoTimeout(1);
      socket.getInputStream().read();
      return true; // the end, or what nobody has asked for
    } catch (SocketTimeoutException e) {
      return false;
    } catch (IOException e) {
      return true;
    } finally {
      socket.setSoTimeout(timeout);
    }
  }

  /** Is called within each try, for each request that goes to the network. */
  Response network(Chain chain) throws IOException {
    Try sent = chain.request().tag(Try.class);
    if (sent == null) {
      return chain.proceed(chain.request());
    }
    Handshake handshake = chain.connection().handshake();
    if (handshake != null) { // OkHttp has looked for the pins of the endpoint's own name only
      pins.check(sent.url.host(), handshake.peerCertificates());
    }
    if (chain.request().body() instanceof OnceBody && isClosed(chain.connection())) {
      throw new ClosedException();
    }
    sent.connected = true;
    sent.answered = false;
    Response response = FollowUps.hide(chain.proceed(chain.request()), sent.url);
    sent.answered = true;
    return response;
  }
}
