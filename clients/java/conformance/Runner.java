package dev.lbd.client; // for its JSON

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.io.PrintStream;
import java.net.SocketTimeoutException;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/** Drives the client as the conformance tests say (clients/conformance/README.md). */
final class Runner {
  private LbdClient lbd;
  private Library library;
  private Library plain;
  private String hash; // where the hash key of a request is: header:NAME, cookie:NAME or code
  private boolean choice; // the answers have it
  private final Queue<String> attempts = new ConcurrentLinkedQueue<>(); // what hooks got, as JSON
  private final Queue<String> states = new ConcurrentLinkedQueue<>();

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Runner runner = new Runner();
    boolean open = true;
    for (String line = in.readLine(); open && line != null; line = open ? in.readLine() : null) {
      Map<String, Object> command = Json.object(line.getBytes(StandardCharsets.UTF_8));
      out.println(runner.run(command));
      open = !"close".equals(command.get("do"));
    }
    runner.close();
    System.exit(0); // OkHttp has threads that are not daemons
  }

  private String run(Map<String, Object> command) throws Exception {
    return switch ((String) command.get("do")) {
      case "open" -> open(command);
      case "request" -> request(command).json();
      case "load" -> load(command);
      case "events" -> events();
      case "close" -> close();
      default -> unsupported("Java does not fork");
    };
  }

  private String open(Map<String, Object> command) {
    close();
    LbdClientBuilder builder =
        LbdClient.builder()
            .address((String) command.get("lbd"))
            .mode(Mode.valueOf(((String) command.get("mode")).toUpperCase(Locale.ROOT)));
    if (command.get("token") instanceof String token) {
      builder.token(token);
    }
    if (command.get("token_file") instanceof String file) {
      builder.tokenFile(Path.of(file));
    }
    Map<?, ?> options = command.get("options") instanceof Map<?, ?> map ? map : Map.of();
    hash = options.get("hash") instanceof String where ? where : "";
    choice = options.containsKey("choice");
    Host host = Host.cluster((String) command.get("cluster"));
    if (options.get("target") instanceof String target) {
      List<?> headers = options.get("headers") instanceof List<?> names ? names : List.of();
      host = Host.target(target, headers.toArray(String[]::new));
    }
    builder.hosts(Map.of("upstream.test", host.hash(hash.equals("code") ? "" : hash)));
    for (Map.Entry<?, ?> option : options.entrySet()) {
      switch ((String) option.getKey()) {
        case "stale_for" -> builder.staleFor(seconds(option.getValue()));
        case "report_interval" -> builder.reportInterval(seconds(option.getValue()));
        case "connect_timeout" -> builder.connectTimeout(seconds(option.getValue()));
        case "max_age" -> builder.maxAge(seconds(option.getValue()));
        case "ttl" -> builder.ttl(seconds(option.getValue()));
        case "retries" -> builder.retries(((Number) option.getValue()).intValue());
        case "max_tokens" -> builder.maxTokens(((Number) option.getValue()).doubleValue());
        case "fallback" -> builder.fallback((String) option.getValue());
        case "hooks" -> builder.listener(listener(option.getValue().equals("fail")));
        case "hash", "target", "headers", "choice" -> {}
        default -> {
          return unsupported("option " + option.getKey());
        }
      }
    }
    lbd = builder.build();
    String adapter = (String) command.getOrDefault("adapter", "core");
    library = Library.of(adapter, lbd);
    plain = Library.of(adapter, null);
    return library == null ? unsupported("adapter " + adapter) : "{\"ok\":true}";
  }

  /** Remembers what it gets, and may fail after that. */
  private LbdListener listener(boolean fails) {
    attempts.clear();
    states.clear();
    return new LbdListener() {
      @Override
      public void onAttempt(Attempted attempt) {
        Choice choice = attempt.choice();
        attempts.add(
            String.format(
                Locale.ROOT,
                "{\"cluster\":%s,\"address\":%s,\"number\":%d,\"outcome\":\"%s\",\"seconds\":%f}",
                Json.quote(choice.cluster()),
                Json.quote(choice.address()),
                choice.attempt(),
                attempt.outcome(),
                attempt.duration().toNanos() / 1e9));
        failIf(fails);
      }

      @Override
      public void onState(State state) {
        states.add("\"" + state.name().toLowerCase(Locale.ROOT) + "\"");
        failIf(fails);
      }
    };
  }

  private static void failIf(boolean fails) {
    if (fails) {
      throw new IllegalStateException("a hook of the test");
    }
  }

  private String events() {
    return "{\"attempts\":" + taken(attempts) + ",\"states\":" + taken(states) + "}";
  }

  private static List<String> taken(Queue<String> events) {
    List<String> taken = new ArrayList<>();
    for (String event = events.poll(); event != null; event = events.poll()) {
      taken.add(event);
    }
    return taken;
  }

  private static Duration seconds(Object number) {
    return Duration.ofNanos((long) (((Number) number).doubleValue() * 1e9));
  }

  private static String unsupported(String why) {
    return "{\"unsupported\":" + Json.quote(why) + "}";
  }

  /** A status and body, or an error and a message; and the choice of the last try, or null. */
  private record Result(int status, String error, String text, Choice choice) {
    String json() {
      String result =
          error == null
              ? "{\"status\":" + status + ",\"body\":" + Json.quote(text)
              : "{\"error\":" + Json.quote(error) + ",\"message\":" + Json.quote(text);
      return result
          + (choice == null
              ? "}"
              : String.format(
                  ",\"choice\":{\"cluster\":%s,\"address\":%s,\"zone\":%s,\"priority\":%d,\"attempt\":%d}}",
                  Json.quote(choice.cluster()),
                  Json.quote(choice.address()),
                  Json.quote(choice.locality().zone()),
                  choice.priority(),
                  choice.attempt()));
    }
  }

  private Result request(Map<String, Object> command) {
    return request(command, (String) command.getOrDefault("key", ""));
  }

  /** Makes request i of a load. */
  private Result request(Map<String, Object> command, long i) {
    return command.get("keys") instanceof Long keys
        ? request(command, command.get("key") + "-" + i % keys)
        : request(command);
  }

  private Result request(Map<String, Object> command, String key) {
    String url = (String) command.get("url");
    Library used = url == null ? library : plain;
    String path = (String) command.getOrDefault("path", "/");
    String method = (String) command.getOrDefault("method", "GET");
    String body = (String) command.get("body");
    Map<String, String> headers = new HashMap<>();
    if (Boolean.TRUE.equals(command.get("idempotent"))) {
      headers.put("Idempotency-Key", "1");
    }
    if (command.get("headers") instanceof Map<?, ?> more) {
      more.forEach((name, value) -> headers.put((String) name, (String) value));
    }
    Ask ask = Ask.NOTHING;
    if (!key.isEmpty() && hash.startsWith("header:")) {
      headers.put(hash.substring("header:".length()), key);
    } else if (!key.isEmpty() && hash.startsWith("cookie:")) {
      headers.put("Cookie", hash.substring("cookie:".length()) + "=" + key);
    } else if (hash.equals("code")) {
      ask = ask.hash(key);
    }
    AtomicReference<Choice> chosen = new AtomicReference<>();
    if (choice) {
      ask = ask.choice(chosen::set);
    }
    Object timeout = command.get("timeout");
    try {
      Library.Response response =
          used.send(
              method,
              url == null ? "http://upstream.test" + path : url,
              body,
              headers,
              timeout == null ? null : seconds(timeout),
              ask);
      return new Result(response.status(), null, response.body(), chosen.get());
    } catch (Exception e) {
      return new Result(0, name(e), e.toString(), chosen.get());
    }
  }

  private static String name(Exception error) {
    if (error instanceof DroppedException) {
      return "dropped";
    } else if (error instanceof CircuitBrokenException) {
      return "circuit_broken";
    } else if (error instanceof UnavailableException) {
      return "unavailable";
    } else if (error instanceof UnknownClusterException) {
      return "unknown_cluster";
    } else if (error instanceof PermissionDeniedException) {
      return "permission_denied";
    } else if (error instanceof HttpConnectTimeoutException
        || (error instanceof SocketTimeoutException && isConnect(error.getMessage()))) {
      return "connection"; // not at the deadline
    } else if (error instanceof HttpTimeoutException || error instanceof InterruptedIOException) {
      return "timeout";
    }
    return error instanceof IOException ? "connection" : "other";
  }

  private static boolean isConnect(String message) { // that of a socket, or of OkHttp
    return message != null && message.matches("(?i)connect timed out|failed to connect .*");
  }

  private String load(Map<String, Object> command) throws Exception {
    long n = (Long) command.get("n");
    int threads = ((Long) command.getOrDefault("threads", 1L)).intValue();
    double rate = ((Number) command.getOrDefault("rate", 0)).doubleValue();
    ExecutorService executor = Executors.newFixedThreadPool(threads);
    Map<Long, List<Double>> took = new TreeMap<>(); // by the second in which the request was due
    long began = System.nanoTime();
    List<Future<Result>> results = new ArrayList<>();
    for (long i = 0; i < n; i++) {
      long number = i;
      long due = rate == 0 ? 0 : (long) ((i + 1) / rate * 1e9);
      results.add(
          executor.submit(
              () -> rate == 0 ? request(command, number) : at(began, due, took, command)));
    }
    Map<String, Integer> statuses = new TreeMap<>();
    Map<String, Integer> errors = new TreeMap<>();
    for (Future<Result> future : results) {
      Result result = future.get();
      if (result.error() == null) {
        statuses.merge("" + result.status(), 1, Integer::sum);
      } else {
        errors.merge(result.error(), 1, Integer::sum);
      }
    }
    double seconds = (System.nanoTime() - began) / 1e9;
    executor.shutdown();
    return "{\"statuses\":"
        + json(statuses)
        + ",\"errors\":"
        + json(errors)
        + ",\"seconds\":"
        + seconds
        + ",\"p99\":"
        + took.values().stream()
            .map(all -> all.stream().sorted().toList().get(all.size() * 99 / 100))
            .toList()
        + "}";
  }

  /** Makes a request when it is due, so many nanoseconds after the begin. */
  private Result at(
      long began, long due, Map<Long, List<Double>> took, Map<String, Object> command) {
    while (System.nanoTime() - began < due) {
      LockSupport.parkNanos(began + due - System.nanoTime());
    }
    Result result = request(command);
    synchronized (took) {
      double seconds = (System.nanoTime() - began - due) / 1e9;
      took.computeIfAbsent(due / 1_000_000_000, second -> new ArrayList<>()).add(seconds);
    }
    return result;
  }

  private static String json(Map<String, Integer> counts) {
    return counts.entrySet().stream()
        .map(entry -> Json.quote(entry.getKey()) + ":" + entry.getValue())
        .collect(Collectors.joining(",", "{", "}"));
  }

  private String close() {
    if (lbd != null) {
      lbd.close();
      lbd = null;
    }
    return "{\"ok\":true}";
  }
}
