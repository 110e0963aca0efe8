package dev.lbd.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsExchange;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SSLContext;

/** An HTTP server on loopback, which by default answers with its own address. */
final class Upstream implements AutoCloseable {
  static {
    System.setProperty("sun.net.httpserver.nodelay", "true");
  }

  /** What it was asked: method, target, Host and body. */
  final List<String> requests = new CopyOnWriteArrayList<>();

  /** The addresses that connections came from. */
  final List<InetSocketAddress> peers = new CopyOnWriteArrayList<>();

  private final HttpServer server;
  private final ExecutorService executor = Executors.newCachedThreadPool();

  interface Behavior {
    void answer(HttpExchange exchange) throws Exception;
  }

  Upstream() throws IOException {
    this(Upstream::reply, null);
  }

  Upstream(Behavior behavior) throws IOException {
    this(behavior, null);
  }

  Upstream(Behavior behavior, SSLContext tls) throws IOException {
    InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    if (tls == null) {
      server = HttpServer.create(any, 0);
    } else {
      HttpsServer https = HttpsServer.create(any, 0);
      https.setHttpsConfigurator(new HttpsConfigurator(tls));
      server = https;
    }
    server.createContext(
        "/",
        exchange -> {
          byte[] body = exchange.getRequestBody().readAllBytes();
          requests.add(
              String.join(
                  " ",
                  exchange.getRequestMethod(),
                  exchange.getRequestURI().toString(),
                  exchange.getRequestHeaders().getFirst("Host"),
                  new String(body, StandardCharsets.UTF_8)));
          if (!peers.contains(exchange.getRemoteAddress())) {
            peers.add(exchange.getRemoteAddress());
          }
          try {
            behavior.answer(exchange);
          } catch (Exception e) {
            exchange.close();
          }
        });
    server.setExecutor(executor);
    server.start();
  }

  String address() {
    return "127.0.0.1:" + server.getAddress().getPort();
  }

  static void reply(HttpExchange exchange) throws IOException {
    reply(exchange, 200, "127.0.0.1:" + exchange.getLocalAddress().getPort());
  }

  static void reply(HttpExchange exchange, int status, String text) throws IOException {
    byte[] body = text.getBytes(StandardCharsets.UTF_8);
    boolean head = exchange.getRequestMethod().equals("HEAD");
    if (head) {
      exchange.getResponseHeaders().set("Content-Length", Integer.toString(body.length));
    }
    exchange.sendResponseHeaders(status, head ? -1 : body.length);
    if (!head) {
      exchange.getResponseBody().write(body);
    }
    exchange.close();
  }

  /** Answers with a status. */
  static Behavior status(int status) {
    return exchange -> reply(exchange, status, "no");
  }

  /** Answers with the name that the client asked for in its TLS handshake. */
  static void replyServerName(HttpExchange exchange) throws IOException {
    ExtendedSSLSession session = (ExtendedSSLSession) ((HttpsExchange) exchange).getSSLSession();
    reply(exchange, 200, session.getRequestedServerNames().toString());
  }

  /** Ends the connection without an answer. */
  static void reset(HttpExchange exchange) {
    exchange.close();
  }

  /** Answers with a body that never ends. */
  static void drip(HttpExchange exchange) throws Exception {
    exchange.sendResponseHeaders(200, 1000);
    for (int i = 0; i < 1000; i++) {
      exchange.getResponseBody().write('.');
      exchange.getResponseBody().flush();
      Thread.sleep(20);
    }
  }

  @Override
  public void close() {
    executor.shutdownNow();
    server.stop(0);
  }
}
