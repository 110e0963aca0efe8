package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.lbd.client.opentelemetry.LbdTracing;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.net.ConnectException;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The spans of OpenTelemetry. */
class TracingTest extends Stand {
  private final InMemorySpanExporter exporter = InMemorySpanExporter.create();

  @ParameterizedTest
  @ValueSource(strings = {"core", "core-async", "okhttp"})
  void makesASpanOfEachTry(String adapter) throws Exception {
    String dead = "127.0.0.1:1";
    Upstream alive = closing(new Upstream(Upstream.status(503)));
    daemon.push(cluster, alive.address(), dead);
    var provider =
        SdkTracerProvider.builder().addSpanProcessor(SimpleSpanProcessor.create(exporter));
    OpenTelemetrySdk sdk =
        closing(OpenTelemetrySdk.builder().setTracerProvider(provider.build()).build());
    LbdClient lbd = client(LbdClient.builder().listener(new LbdTracing(sdk)));
    Library library = Library.of(adapter, lbd);
    Span parent = sdk.getTracer("test").spanBuilder("parent").startSpan();
    boolean repeated = false;
    closing(parent.makeCurrent());
    while (!repeated) { // some requests begin at the dead endpoint
      exporter.reset();
      try {
        library.send("GET", url + "/items?key=secret", null, false, TIMEOUT);
      } catch (ConnectException e) {
        // the dead endpoint was the last one
      }
      repeated = exporter.getFinishedSpanItems().size() == 2;
    }
    int number = 0;
    for (SpanData span : exporter.getFinishedSpanItems()) {
      assertEquals("GET", span.getName());
      assertEquals(SpanKind.CLIENT, span.getKind());
      assertEquals(parent.getSpanContext().getSpanId(), span.getParentSpanId());
      assertTrue(span.getStartEpochNanos() < span.getEndEpochNanos());
      Map<String, String> got = new TreeMap<>();
      span.getAttributes().forEach((key, value) -> got.put(key.getKey(), value.toString()));
      Map<String, String> expected = new TreeMap<>();
      expected.put("http.request.method", "GET");
      expected.put("lbd.cluster", cluster);
      expected.put("server.address", cluster + ".lbd");
      expected.put("server.port", "80");
      expected.put("network.peer.address", "127.0.0.1");
      String address = got.get("network.peer.address") + ":" + got.get("network.peer.port");
      boolean unreachable = address.equals(dead);
      expected.put("network.peer.port", (unreachable ? dead : alive.address()).split(":")[1]);
      expected.put("error.type", unreachable ? "unreachable" : "503");
      if (!unreachable) {
        expected.put("http.response.status_code", "503");
      }
      if (number++ > 0) {
        expected.put("http.request.resend_count", "1");
      }
      assertEquals(expected, got);
    }
  }
}
