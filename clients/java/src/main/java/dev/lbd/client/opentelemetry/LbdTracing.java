package dev.lbd.client.opentelemetry;

import dev.lbd.client.Attempted;
import dev.lbd.client.LbdListener;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import java.net.URI;
import java.net.http.HttpRequest;
import java.time.Instant;
import okhttp3.Request;

/**
 * Makes a span of each try of a request of java.net.http or OkHttp, with the semantic conventions
 * of OpenTelemetry for HTTP. It is a child of the span that is current when the request begins. The
 * span has ended by then, so headers do not name it.
 */
public final class LbdTracing implements LbdListener {
  private static final AttributeKey<String> METHOD = AttributeKey.stringKey("http.request.method");
  private static final AttributeKey<String> SERVER = AttributeKey.stringKey("server.address");
  private static final AttributeKey<Long> SERVER_PORT = AttributeKey.longKey("server.port");
  private static final AttributeKey<String> PEER = AttributeKey.stringKey("network.peer.address");
  private static final AttributeKey<Long> PEER_PORT = AttributeKey.longKey("network.peer.port");
  private static final AttributeKey<Long> STATUS =
      AttributeKey.longKey("http.response.status_code");
  private static final AttributeKey<Long> RESENDS =
      AttributeKey.longKey("http.request.resend_count");
  private static final AttributeKey<String> ERROR = AttributeKey.stringKey("error.type");
  private static final AttributeKey<String> CLUSTER = AttributeKey.stringKey("lbd.cluster");

  private final Tracer tracer;

  /**
   * Makes a listener.
   *
   * @param telemetry makes the tracer
   */
  public LbdTracing(OpenTelemetry telemetry) {
    this.tracer = telemetry.getTracer("dev.lbd.client");
  }

  @Override
  public Object onRequest() {
    return Context.current();
  }

  @Override
  public void onAttempt(Attempted attempt) {
    if (attempt.request() instanceof HttpRequest request) {
      span(attempt, request.method(), request.uri());
    } else if (attempt.request() instanceof Request request) {
      span(attempt, request.method(), request.url().uri());
    }
  }

  private void span(Attempted attempt, String method, URI uri) {
    int usual = "https".equalsIgnoreCase(uri.getScheme()) ? 443 : 80;
    String peer = attempt.choice().address();
    int colon = peer.lastIndexOf(':');
    Instant end = Instant.now();
    Span span =
        tracer
            .spanBuilder(method)
            .setSpanKind(SpanKind.CLIENT)
            .setParent((Context) attempt.context())
            .setStartTimestamp(end.minus(attempt.duration()))
            .startSpan()
            .setAttribute(METHOD, method)
            .setAttribute(SERVER, uri.getHost())
            .setAttribute(SERVER_PORT, uri.getPort() < 0 ? usual : uri.getPort())
            .setAttribute(PEER, peer.substring(0, colon).replaceAll("[\\[\\]]", ""))
            .setAttribute(PEER_PORT, Integer.parseInt(peer.substring(colon + 1)))
            .setAttribute(CLUSTER, attempt.choice().cluster());
    if (attempt.choice().attempt() > 1) {
      span.setAttribute(RESENDS, attempt.choice().attempt() - 1);
    }
    int status = attempt.status();
    if (status > 0) {
      span.setAttribute(STATUS, status);
    }
    if (status == 0 || status >= 400) {
      span.setAttribute(ERROR, status == 0 ? attempt.outcome().toString() : "" + status);
      span.setStatus(StatusCode.ERROR);
    }
    span.end(end);
  }
}
