package dev.lbd.client;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/** Settings of a new {@link LbdClient}. All have defaults, some of them from the environment. */
public final class LbdClientBuilder {
  private static final Duration FOREVER = Duration.ofDays(36500); // more would overflow nanoseconds

  private final UnaryOperator<String> environment; // returns null for what is not set
  private String address;
  private String found = "environment LBD"; // how address was found
  private LbdListener listener;
  private System.Logger logger;
  private Mode mode = Mode.BATCH;
  private String token; // null, and so tokenFile, for that of the environment
  private String tokenFile;
  private String ca;
  private String owner;
  private Function<String, Host> hosts = host -> null;
  private String fallback;
  private Duration timeout = Duration.ofSeconds(30);
  private Duration connectTimeout = Duration.ofSeconds(5);
  private Duration staleFor = Duration.ofSeconds(60);
  private Duration maxAge = Duration.ofSeconds(10);
  private int retries = 2;
  private double maxTokens = 100;
  private Duration ttl = Duration.ofSeconds(30);
  private Duration reportInterval = Duration.ofSeconds(5);

  LbdClientBuilder(UnaryOperator<String> environment) {
    this.environment = environment;
    this.address = environment("LBD");
    this.ca = environment("LBD_CA");
    this.owner = environment("LBD_OWNER");
  }

  /**
   * Sets the address of lbd. Default: environment LBD, else the first of unix:/run/lbd.sock and
   * unix:/run/lbd/lbd.sock that is a socket, else http://localhost:8080.
   *
   * @param address unix:PATH, http://HOST:PORT or https://HOST:PORT
   * @return this
   */
  public LbdClientBuilder address(String address) {
    this.address = Objects.requireNonNull(address, "address");
    this.found = "the setting address";
    return this;
  }

  /**
   * Sets how the client gets picks. Default: {@link Mode#BATCH}.
   *
   * @param mode the mode
   * @return this
   */
  public LbdClientBuilder mode(Mode mode) {
    this.mode = Objects.requireNonNull(mode, "mode");
    return this;
  }

  /**
   * Sets the token for lbd, with the roles pick and read. Default: environment LBD_TOKEN.
   *
   * @param token the token
   * @return this
   */
  public LbdClientBuilder token(String token) {
    this.token = Objects.requireNonNull(token, "token");
    return this;
  }

  /**
   * Sets a file with the token, which is read again when lbd rejects the token. It is not used if
   * there is a token. Default: environment LBD_TOKEN_FILE.
   *
   * @param file the file
   * @return this
   */
  public LbdClientBuilder tokenFile(Path file) {
    this.tokenFile = file.toString();
    return this;
  }

  /**
   * Sets the certificates that may sign that of lbd. Default: environment LBD_CA, else those that
   * Java trusts.
   *
   * @param file a PEM file
   * @return this
   */
  public LbdClientBuilder ca(Path file) {
    this.ca = file.toString();
    return this;
  }

  /**
   * Sets the name of this client in leases. Default: environment LBD_OWNER, else HOSTNAME/PID.
   *
   * @param owner the name
   * @return this
   */
  public LbdClientBuilder owner(String owner) {
    this.owner = Objects.requireNonNull(owner, "owner");
    return this;
  }

  /**
   * Sets what requests to hosts are for: clusters whose names are not valid in a URL, targets, and
   * hash keys. Other hosts CLUSTER.lbd name a cluster.
   *
   * @param hosts the clusters or targets by host
   * @return this
   */
  public LbdClientBuilder hosts(Map<String, Host> hosts) {
    return hosts(
        hosts.entrySet().stream()
                .collect(
                    Collectors.toUnmodifiableMap(
                        entry -> entry.getKey().toLowerCase(Locale.ROOT), Map.Entry::getValue))
            ::get);
  }

  /**
   * Sets what requests to hosts are for.
   *
   * @param hosts returns the cluster or target of a host in lower case, or null
   * @return this
   */
  public LbdClientBuilder hosts(Function<String, Host> hosts) {
    this.hosts = Objects.requireNonNull(hosts, "hosts");
    return this;
  }

  /**
   * Sets where requests go while lbd is unreachable and the last batch is too old. Default: they
   * fail.
   *
   * @param address HOST:PORT
   * @return this
   */
  public LbdClientBuilder fallback(String address) {
    if (!Batch.isAddress(address)) {
      throw new IllegalArgumentException("fallback: \"" + address + "\" is not HOST:PORT");
    }
    this.fallback = address;
    return this;
  }

  /**
   * Sets the deadline of requests that have none. Default: 30 s.
   *
   * @param timeout the time, or null for none
   * @return this
   */
  public LbdClientBuilder timeout(Duration timeout) {
    this.timeout = timeout == null ? null : positive("timeout", timeout);
    return this;
  }

  /**
   * Sets the time to connect to an endpoint, if the HTTP library has no shorter one. Default: 5 s.
   *
   * @param timeout the time
   * @return this
   */
  public LbdClientBuilder connectTimeout(Duration timeout) {
    this.connectTimeout = positive("connectTimeout", timeout);
    return this;
  }

  /**
   * Sets how long the last batch is used while lbd is unreachable. Default: 60 s.
   *
   * @param time the time
   * @return this
   */
  public LbdClientBuilder staleFor(Duration time) {
    this.staleFor = positive("staleFor", time);
    return this;
  }

  /**
   * Sets the age at which a batch is replaced in any case, at most. Default: 10 s.
   *
   * @param age the age
   * @return this
   */
  public LbdClientBuilder maxAge(Duration age) {
    this.maxAge = positive("maxAge", age);
    return this;
  }

  /**
   * Sets how often a request is retried at most. Default: 2.
   *
   * @param retries the number of retries
   * @return this
   */
  public LbdClientBuilder retries(int retries) {
    if (retries < 0) {
      throw new IllegalArgumentException("retries: " + retries + " is negative");
    }
    this.retries = retries;
    return this;
  }

  /**
   * Sets the budget of retries of each cluster (gRFC A6). Default: 100.
   *
   * @param tokens the tokens at first and at most
   * @return this
   */
  public LbdClientBuilder maxTokens(double tokens) {
    if (!(tokens >= 0)) {
      throw new IllegalArgumentException("maxTokens: " + tokens + " is not a number from 0 on");
    }
    this.maxTokens = tokens;
    return this;
  }

  /**
   * Sets the ttl of the lease of a request without a deadline. Default: 30 s.
   *
   * @param ttl the ttl
   * @return this
   */
  public LbdClientBuilder ttl(Duration ttl) {
    this.ttl = positive("ttl", ttl);
    return this;
  }

  /**
   * Sets the time between two reports. Default: 5 s.
   *
   * @param interval the time
   * @return this
   */
  public LbdClientBuilder reportInterval(Duration interval) {
    this.reportInterval = positive("reportInterval", interval);
    return this;
  }

  /**
   * Sets what is called when tries end, and when lbd is unreachable or answers again. Default:
   * nothing.
   *
   * @param listener is called
   * @return this
   */
  public LbdClientBuilder listener(LbdListener listener) {
    this.listener = listener;
    return this;
  }

  /**
   * Sets the log of what a listener gets: tries at the level DEBUG, states from INFO on. It has no
   * tokens, hash keys, queries and headers. Default: no log.
   *
   * @param logger the log
   * @return this
   */
  public LbdClientBuilder logger(System.Logger logger) {
    this.logger = logger;
    return this;
  }

  /**
   * Makes the client. It does not connect to lbd before the first request.
   *
   * @return the client
   * @throws IllegalArgumentException a setting is not valid
   */
  public LbdClient build() {
    String at = address.isEmpty() ? Address.byDefault() : address;
    Address lbd = Address.of(at, ca);
    String usedToken = token;
    if (usedToken == null) {
      usedToken = tokenFile == null ? environment("LBD_TOKEN") : "";
    }
    String process = process();
    byte[] random = new byte[4]; // containers may have the same host name, and all have the PID 1
    new SecureRandom().nextBytes(random);
    return new LbdClient(
        new Settings(
            lbd,
            at + " (" + (address.isEmpty() ? "default; set LBD" : found) + ")",
            new Hooks(listener, logger),
            mode,
            Api.checkToken(usedToken),
            tokenFile == null ? environment("LBD_TOKEN_FILE") : tokenFile,
            owner.isEmpty() ? process : owner,
            process + "/" + HexFormat.of().formatHex(random),
            hosts,
            fallback,
            timeout,
            connectTimeout,
            staleFor,
            maxAge,
            retries,
            maxTokens,
            ttl,
            reportInterval));
  }

  private static Duration positive(String name, Duration duration) {
    if (duration.isZero() || duration.isNegative()) {
      throw new IllegalArgumentException(name + ": " + duration + " is not positive");
    }
    return duration.compareTo(FOREVER) < 0 ? duration : FOREVER;
  }

  private String environment(String name) {
    return Objects.requireNonNullElse(environment.apply(name), "");
  }

  private static String process() {
    String host;
    try { // without DNS, where that is possible
      host = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException e) {
      try {
        host = InetAddress.getLocalHost().getHostName();
      } catch (IOException unknown) {
        host = "localhost";
      }
    }
    return host.substring(0, Math.min(100, host.length())) + "/" + ProcessHandle.current().pid();
  }
}
