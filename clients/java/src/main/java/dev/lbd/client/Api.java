package dev.lbd.client;

import java.io.Closeable;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketException;
import java.net.URLEncoder;
import java.nio.channels.ClosedByInterruptException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Deque;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedDeque;

/** lbd's HTTP API at one address. Safe for threads. */
final class Api implements Closeable {
  /** Time for a call that does not wait. */
  static final Duration CALL_TIMEOUT = Duration.ofSeconds(2);

  private static final int MAX_IDLE = 32;
  private static final long IDLE_NANOS = Duration.ofSeconds(30).toNanos();

  // Answers that reject without a code: a proxy before lbd gives them, too.
  private static final Set<Integer> PLAIN_REJECTIONS = Set.of(401, 403, 429);

  private final Address address;
  private final String at; // the address in messages, and how it was found
  private final Hooks hooks;
  private final Path tokenFile;
  private final Deque<Connection> idle = new ConcurrentLinkedDeque<>();
  private volatile String token;
  private volatile boolean closed;

  /** Tokens are empty for none. */
  Api(Address address, String at, String token, String tokenFile, Hooks hooks) {
    this.address = address;
    this.at = at;
    this.hooks = hooks;
    this.token = token;
    this.tokenFile = tokenFile.isEmpty() || !token.isEmpty() ? null : Path.of(tokenFile);
    if (this.tokenFile != null) {
      this.token = readToken();
    }
  }

  /**
   * Holds the connection of a caller that makes one call after the other; any thread may close it.
   */
  static final class Slot implements Closeable {
    private Connection connection;
    private boolean closed;

    private synchronized Connection get() {
      return connection;
    }

    private synchronized void put(Connection connection) throws IOException {
      this.connection = connection;
      if (closed) {
        connection.close();
        throw new SocketException("closed");
      }
    }

    private synchronized Connection take() {
      Connection taken = connection;
      connection = null;
      return taken;
    }

    synchronized void drop() {
      if (connection != null) {
        connection.close();
        connection = null;
      }
    }

    @Override
    public synchronized void close() {
      closed = true;
      drop();
    }
  }

  /**
   * Makes a call, and returns the object that lbd answers.
   *
   * @param kept keeps the connection after the call, unless it failed; null for one of the pool
   * @param target path and query
   * @param body JSON, or null
   * @param request deadline of the request that needs the call
   * @throws LbdException the answer rejects
   * @throws UnreachableException there is no complete answer
   */
  Map<String, Object> call(
      Slot kept,
      String cluster,
      String method,
      String target,
      String body,
      Duration timeout,
      Deadline request)
      throws IOException, InterruptedException {
    Deadline until = Deadline.after(request.atMost(timeout));
    Slot slot = kept == null ? pooled() : kept;
    boolean answered = false;
    try {
      Map<String, Object> answer = call(slot, cluster, method, target, body, until);
      answered = true;
      return answer;
    } catch (LbdException e) {
      answered = true;
      throw e;
    } catch (UnreachableException e) {
      if (!request.passed()) {
        hooks.reached(e);
      }
      throw e;
    } finally {
      if (answered) {
        hooks.reached(null);
      }
      if (kept == null && answered) {
        release(slot);
      }
      if (kept == null) {
        slot.close();
      }
    }
  }

  private Map<String, Object> call(
      Slot slot, String cluster, String method, String target, String body, Deadline until)
      throws IOException, InterruptedException {
    String used = token;
    HttpAnswer answer = exchange(slot, method, target, body, used, until);
    if (answer.status() == 401 && tokenFile != null) {
      String fresh = readToken();
      if (!fresh.equals(used)) {
        token = fresh;
        answer = exchange(slot, method, target, body, fresh, until);
      }
    }
    Map<String, Object> object;
    try {
      object = Json.object(answer.body());
    } catch (IllegalArgumentException e) {
      object = null;
    }
    int status = answer.status();
    if ((status == 200 || status == 201) && object != null) {
      if (target.startsWith("/v1/pick?")
          && !object.containsKey("picks")
          && !object.containsKey("address")) {
        throw unreachable(method, target, new ProtocolException("the answer has no picks"));
      }
      return object;
    }
    boolean code = object != null && object.get("code") instanceof String text && !text.isEmpty();
    if (status < 400 || !(code || PLAIN_REJECTIONS.contains(status))) {
      throw unreachable(
          method, target, new ProtocolException("status " + status + " without a code of lbd"));
    }
    Map<String, Object> problem = object == null ? Map.of() : object;
    throw LbdException.ofAnswer(
        cluster, status, problem, seconds(answer.headers().get("retry-after")));
  }

  private HttpAnswer exchange(
      Slot slot, String method, String target, String body, String token, Deadline until)
      throws IOException, InterruptedException {
    byte[] request = request(method, target, body, token);
    try {
      Connection connection = slot.get();
      if (connection != null) {
        try {
          return exchange(slot, connection, request, until);
        } catch (Connection.NoAnswerException e) {
          slot.drop(); // lbd closes idle connections at times: it did not get the call
        }
      }
      connection = Connection.open(address, until);
      slot.put(connection);
      return exchange(slot, connection, request, until);
    } catch (ClosedByInterruptException e) {
      slot.drop();
      Thread.interrupted();
      throw new InterruptedException();
    } catch (IOException e) {
      slot.drop();
      throw unreachable(method, target, e);
    }
  }

  /** Returns the error of a call without a valid answer. It has no query. */
  UnreachableException unreachable(String method, String target, Exception cause) {
    return new UnreachableException(method + " " + target.split("\\?")[0] + " at " + at, cause);
  }

  private static HttpAnswer exchange(
      Slot slot, Connection connection, byte[] request, Deadline until) throws IOException {
    HttpAnswer answer = connection.exchange(request, until);
    if (!answer.reusable()) {
      slot.drop();
    }
    return answer;
  }

  private byte[] request(String method, String target, String body, String token) {
    byte[] content = body == null ? new byte[0] : body.getBytes(StandardCharsets.UTF_8);
    StringBuilder head = new StringBuilder(256);
    head.append(method).append(' ').append(target).append(" HTTP/1.1\r\n");
    head.append("Host: ").append(address.hostHeader()).append("\r\n");
    head.append("Accept: application/json\r\nUser-Agent: lbd-client-java\r\n");
    if (!token.isEmpty()) {
      head.append("Authorization: Bearer ").append(token).append("\r\n");
    }
    if (body != null) {
      head.append("Content-Type: application/json\r\n");
    }
    if (body != null || !method.equals("GET")) {
      head.append("Content-Length: ").append(content.length).append("\r\n");
    }
    byte[] first = head.append("\r\n").toString().getBytes(StandardCharsets.ISO_8859_1);
    byte[] request = new byte[first.length + content.length];
    System.arraycopy(first, 0, request, 0, first.length);
    System.arraycopy(content, 0, request, first.length, content.length);
    return request;
  }

  private Slot pooled() throws IOException {
    Slot slot = new Slot();
    Connection pooled = takeIdle();
    if (pooled != null) {
      slot.put(pooled);
    }
    return slot;
  }

  private Connection takeIdle() {
    while (true) {
      Connection connection = idle.pollFirst();
      if (connection == null || !connection.idleFor(IDLE_NANOS)) {
        return connection;
      }
      connection.close();
    }
  }

  private void release(Slot slot) {
    Connection connection = slot.take();
    if (connection == null) {
      return;
    }
    connection.idle();
    idle.addFirst(connection);
    Connection old = idle.peekLast();
    boolean surplus = closed || idle.size() > MAX_IDLE || (old != null && old.idleFor(IDLE_NANOS));
    if (surplus && (old = idle.pollLast()) != null) {
      old.close();
    }
  }

  private String readToken() {
    try {
      return checkToken(Files.readString(tokenFile, StandardCharsets.US_ASCII).strip());
    } catch (IOException | IllegalArgumentException e) {
      return token == null ? "" : token;
    }
  }

  /** Throws IllegalArgumentException for what cannot be a token in a header. */
  static String checkToken(String token) {
    if (!token.matches("[!-~]*")) {
      throw new IllegalArgumentException("token: contains a character that is not printable ASCII");
    }
    return token;
  }

  /** Encodes a part of a path or query. */
  static String encode(String text) {
    return encode(text, StandardCharsets.UTF_8);
  }

  static String encode(String text, Charset charset) {
    return URLEncoder.encode(text, charset).replace("+", "%20");
  }

  /** Returns a duration in the form of the API. */
  static String duration(Duration duration) {
    return duration.toMillis() + "ms";
  }

  private static Duration seconds(String text) {
    return text != null && text.matches("[0-9]{1,5}")
        ? Duration.ofSeconds(Integer.parseInt(text))
        : Duration.ZERO;
  }

  /** Closes the idle connections. Calls in progress end as usual. */
  @Override
  public void close() {
    closed = true;
    for (Connection c = idle.pollFirst(); c != null; c = idle.pollFirst()) {
      c.close();
    }
  }
}
