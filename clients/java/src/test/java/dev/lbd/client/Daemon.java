package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** A real lbd that listens on a unix socket. */
final class Daemon implements AutoCloseable {
  private static final Duration DEADLINE = Duration.ofSeconds(120);

  private final Path directory;
  private final List<String> flags;
  private Process process;

  interface Condition {
    boolean holds() throws Exception;
  }

  /** Waits until a condition holds. */
  static void until(String what, Condition condition) throws Exception {
    Deadline end = Deadline.after(DEADLINE);
    while (!condition.holds()) {
      if (end.passed()) {
        throw new AssertionError("not within " + DEADLINE + ": " + what);
      }
      Thread.sleep(20);
    }
  }

  /** Starts lbd with flags in addition to those of the unix socket. */
  Daemon(String... flags) throws Exception {
    this.directory = Files.createTempDirectory("lbd");
    this.flags = List.of(flags);
    start();
  }

  void start() throws Exception {
    List<String> command = new ArrayList<>();
    command.add(System.getenv().getOrDefault("LBD_BIN", "../../bin/lbd"));
    command.addAll(List.of("serve", "--connect=none", "--data=" + directory.resolve("data")));
    command.add("--listen=" + lbd());
    command.addAll(flags);
    File log = directory.resolve("log").toFile();
    ProcessBuilder.Redirect append = ProcessBuilder.Redirect.appendTo(log);
    process = new ProcessBuilder(command).redirectError(append).redirectOutput(append).start();
    until("lbd is ready", this::ready);
  }

  private boolean ready() throws Exception {
    if (!process.isAlive()) {
      throw new AssertionError("lbd ended: " + Files.readString(directory.resolve("log")));
    }
    try {
      return exchange("GET", "/livez", null).status() == 200;
    } catch (IOException e) {
      return false;
    }
  }

  String lbd() {
    return "unix:" + directory.resolve("lbd.sock");
  }

  /** Returns the address of the listener --listen=127.0.0.1:0. */
  String tcp() throws IOException {
    Matcher matcher =
        Pattern.compile("addresses=.*?(127\\.0\\.0\\.1:[0-9]+)")
            .matcher(Files.readString(directory.resolve("log")));
    assertTrue(matcher.find(), "the log has the address");
    return matcher.group(1);
  }

  private HttpAnswer exchange(String method, String path, String body) throws IOException {
    Deadline until = Deadline.after(DEADLINE);
    byte[] content = body == null ? new byte[0] : body.getBytes(StandardCharsets.UTF_8);
    String head = method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + content.length;
    byte[] first = (head + "\r\n\r\n").getBytes(StandardCharsets.UTF_8);
    byte[] request = Arrays.copyOf(first, first.length + content.length);
    System.arraycopy(content, 0, request, first.length, content.length);
    try (Connection connection = Connection.open(Address.of(lbd(), ""), until)) {
      return connection.exchange(request, until);
    }
  }

  String call(String method, String path, String body) throws IOException {
    HttpAnswer answer = exchange(method, path, body);
    String text = new String(answer.body(), StandardCharsets.UTF_8);
    if (answer.status() >= 300) {
      throw new AssertionError(method + " " + path + ": " + answer.status() + " " + text);
    }
    return text;
  }

  void push(String cluster, String... addresses) throws IOException {
    pushWithPolicy(cluster, "{}", addresses);
  }

  void pushWithPolicy(String cluster, String policy, String... addresses) throws IOException {
    pushLocalities(cluster, policy, List.of(locality(0, addresses)));
  }

  /** Pushes one endpoint for each priority, from 0 on, in a zone of the same name. */
  void pushPriorities(String cluster, String... addresses) throws IOException {
    List<String> localities = new ArrayList<>();
    for (String address : addresses) {
      localities.add(locality(localities.size(), address));
    }
    pushLocalities(cluster, "{}", localities);
  }

  /** Pushes endpoints of a cluster that chooses among them by hash keys. */
  void pushRing(String cluster, String... addresses) throws IOException {
    call(
        "PUT",
        "/v1/clusters/" + cluster + "/config",
        "{\"type\":\"EDS\",\"lb_policy\":\"RING_HASH\"}");
    push(cluster, addresses);
  }

  /** Pushes a target: requests with the header tenant: beta go to the cluster -0, others to -1. */
  void pushTarget(String target) throws IOException {
    String type = "type.googleapis.com/envoy.";
    String beta = "[{\"name\":\"tenant\",\"string_match\":{\"exact\":\"beta\"}}]";
    String listener =
        """
        {"resources":[{"@type":"%sconfig.listener.v3.Listener","name":"%s","api_listener":{"api_listener":{
        "@type":"%sextensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "route_config":{"virtual_hosts":[{"name":"any","domains":["*"],"routes":[
        {"match":{"prefix":"/","headers":%s},"route":{"cluster":"%s-0"}},
        {"match":{"prefix":"/"},"route":{"cluster":"%s-1"}}]}]}}}}]}""";
    call("POST", "/v1/snapshot", listener.formatted(type, target, type, beta, target, target));
  }

  /** Pushes a target with one route, for paths with a prefix. */
  void pushRoute(String target, String prefix, String cluster) throws IOException {
    String type = "type.googleapis.com/envoy.";
    String listener =
        """
        {"resources":[{"@type":"%sconfig.listener.v3.Listener","name":"%s","api_listener":{"api_listener":{
        "@type":"%sextensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "route_config":{"virtual_hosts":[{"name":"any","domains":["*"],"routes":[
        {"match":{"prefix":"%s"},"route":{"cluster":"%s"}}]}]}}}}]}""";
    call("POST", "/v1/snapshot", listener.formatted(type, target, type, prefix, cluster));
  }

  private void pushLocalities(String cluster, String policy, List<String> localities)
      throws IOException {
    String body =
        "{\"endpoints\":[" + String.join(",", localities) + "],\"policy\":" + policy + "}";
    call("PUT", "/v1/clusters/" + Api.encode(cluster) + "/endpoints", body);
  }

  private static String locality(int priority, String... addresses) {
    return Arrays.stream(addresses)
        .map(
            address -> {
              int colon = address.lastIndexOf(':');
              return "{\"endpoint\":{\"address\":{\"socket_address\":{\"address\":\""
                  + address.substring(0, colon)
                  + "\",\"port_value\":"
                  + address.substring(colon + 1)
                  + "}}}}";
            })
        .collect(
            Collectors.joining(
                ",",
                "{\"priority\":"
                    + priority
                    + ",\"locality\":{\"zone\":\""
                    + priority
                    + "\"},\"lb_endpoints\":[",
                "]}"));
  }

  /** Returns how many leases of a cluster are held. */
  long inFlight(String cluster) throws IOException {
    String state = call("GET", "/v1/clusters/" + cluster + "?endpoints=false", null);
    Map<String, Object> object = Json.object(state.getBytes(StandardCharsets.UTF_8));
    return (Long) ((Map<?, ?>) object.get("circuit_breaker")).get("in_flight");
  }

  /** Returns how many requests were reported with an outcome. */
  int reported(String cluster, String outcome) throws IOException {
    return metric(
        "lbd_reported_requests_total{cluster=\"" + cluster + "\",outcome=\"" + outcome + "\"}");
  }

  /** Returns how many connect failures were reported, other than by leases. */
  int connectFailures(String cluster) throws IOException {
    return metric("lbd_reported_connect_failures_total{cluster=\"" + cluster + "\"}");
  }

  /** Returns how many leases ended with an outcome. */
  int finished(String cluster, String outcome) throws IOException {
    return metric(
        "lbd_leases_finished_total{cluster=\"" + cluster + "\",outcome=\"" + outcome + "\"}");
  }

  /** Returns the calls for picks that lbd has answered with a status. */
  int picks(int status) throws IOException {
    return metric(
        "lbd_http_requests_total{code=\"" + status + "\",method=\"GET\",route=\"/v1/pick\"}");
  }

  private int metric(String series) throws IOException {
    return call("GET", "/metrics", null)
        .lines()
        .filter(line -> line.startsWith(series + " "))
        .map(line -> (int) Double.parseDouble(line.substring(series.length())))
        .findAny()
        .orElse(0);
  }

  void signal(String name) throws IOException {
    try {
      new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  void stop() throws InterruptedException {
    process.destroy();
    if (!process.waitFor(DEADLINE.toSeconds(), TimeUnit.SECONDS)) {
      process.destroyForcibly();
      throw new AssertionError("lbd does not end");
    }
  }

  @Override
  public void close() throws IOException {
    try {
      stop();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
    try (var files = Files.walk(directory)) {
      files.sorted(java.util.Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
    }
  }
}
