package dev.lbd.client;

import java.io.Closeable;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Comparator;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Gets picks from lbd, and reports how requests ended. Make one for the process, and use it from
 * all threads: {@link LbdHttpClient} and dev.lbd.client.okhttp send requests with it.
 *
 * <p>Other HTTP libraries use {@link #call}. Background work is done in daemon threads. At the end
 * of the process, or at {@link #close}, the client sends its last report and ends its leases.
 */
public final class LbdClient implements Closeable {
  private static final String SUFFIX = ".lbd";
  private static final int MAX_CLUSTERS = 1000;
  private static final int MAX_NAME = 512; // bytes, as lbd permits
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(1);
  private static final Set<String> IDEMPOTENT = Set.of("GET", "HEAD", "OPTIONS", "PUT", "DELETE");

  static {
    RestrictedHeaders.allowHost(); // before any class of java.net.http is in use
  }

  private final Settings settings;
  private final Hooks hooks;
  private final Api api;
  private final Sender sender;
  private final ConcurrentHashMap<String, Cluster> clusters = new ConcurrentHashMap<>();
  private final Thread hook = new Thread(this::end, "lbd last report");
  private volatile boolean closed;

  LbdClient(Settings settings) {
    this.settings = settings;
    this.hooks = settings.hooks();
    this.api =
        new Api(settings.address(), settings.at(), settings.token(), settings.tokenFile(), hooks);
    this.sender =
        new Sender(api, clusters.values(), settings.reporter(), settings.reportInterval());
    Runtime.getRuntime().addShutdownHook(hook);
  }

  /**
   * Makes a client with the settings of the environment.
   *
   * @return the client
   * @throws IllegalArgumentException a setting is not valid
   */
  public static LbdClient create() {
    return builder().build();
  }

  /**
   * Returns the settings of a new client.
   *
   * @return settings with their defaults
   */
  public static LbdClientBuilder builder() {
    return new LbdClientBuilder(System::getenv);
  }

  /**
   * Returns what requests to a host are for: the cluster orders for orders.lbd, or what the setting
   * hosts says.
   *
   * @param host the host of a URL, without port
   * @return the cluster or target; empty if requests to the host are not for lbd
   */
  public Optional<Host> hostOf(String host) {
    if (host == null || host.isEmpty()) {
      return Optional.empty();
    }
    String name = host.toLowerCase(Locale.ROOT);
    Host known = settings.hosts().apply(name);
    if (known == null && name.endsWith(SUFFIX) && name.length() > SUFFIX.length()) {
      known = Host.cluster(name.substring(0, name.length() - SUFFIX.length()));
    }
    return Optional.ofNullable(known);
  }

  /**
   * Begins a request that asks for nothing but a cluster, as {@link #call(String, Ask, Deadline,
   * boolean)}.
   *
   * @param cluster name of the cluster
   * @param deadline deadline of the request with all of its tries
   * @param repeatable whether the request may be sent again: it is idempotent, and so is its body
   * @return the request
   * @throws UnavailableException the client is closed, or uses too many clusters
   */
  public Call call(String cluster, Deadline deadline, boolean repeatable)
      throws UnavailableException {
    return call(cluster, Ask.NOTHING, deadline, repeatable);
  }

  /**
   * Begins a request to a cluster or target. Nothing is sent before {@link Call#first}.
   *
   * @param cluster name of the cluster, or xds:///NAME for a target
   * @param ask what the request asks
   * @param deadline deadline of the request with all of its tries
   * @param repeatable whether the request may be sent again: it is idempotent, and so is its body
   * @return the request
   * @throws UnavailableException the client is closed, or uses too many clusters; the name has more
   *     than 512 bytes, or what the request asks more than 24 KiB
   */
  public Call call(String cluster, Ask ask, Deadline deadline, boolean repeatable)
      throws UnavailableException {
    if (closed) {
      throw new UnavailableException(cluster, "the client is closed", null);
    }
    Cluster known = clusters.get(cluster);
    if (known == null) {
      if (cluster.getBytes(StandardCharsets.UTF_8).length > MAX_NAME) {
        throw UnavailableException.tooLong(
            cluster.substring(0, MAX_NAME / 4), "its name has more than 512 bytes");
      }
      if (clusters.size() >= MAX_CLUSTERS && settings.mode() == Mode.BATCH) {
        clusters.values().removeIf(any -> any.batch() == null);
      } else if (clusters.size() >= MAX_CLUSTERS) {
        clusters.values().stream()
            .min(Comparator.comparingLong(Cluster::picked))
            .ifPresent(clusters.values()::remove);
      }
      if (clusters.size() >= MAX_CLUSTERS) {
        throw new UnavailableException(
            cluster, "the client uses " + MAX_CLUSTERS + " clusters", null);
      }
      known = clusters.computeIfAbsent(cluster, this::newCluster);
      if (closed) {
        known.stop();
      }
    }
    return new Call(this, known, ask, deadline, repeatable);
  }

  /** Returns whether it is the cluster for its name: it was not forgotten. */
  boolean knows(Cluster cluster) {
    return clusters.get(cluster.name()) == cluster;
  }

  private Cluster newCluster(String name) {
    return new Cluster(name, this);
  }

  /** Returns the counts of a cluster, which the routes of a target may have chosen. */
  Counts counts(String cluster) {
    return clusters.computeIfAbsent(cluster, this::newCluster).counts();
  }

  /**
   * Returns the deadline of a request that sets none.
   *
   * @return the deadline, from now
   */
  public Deadline defaultDeadline() {
    return Deadline.after(settings.timeout());
  }

  /**
   * Returns the time to connect to an endpoint.
   *
   * @return the time
   */
  public Duration connectTimeout() {
    return settings.connectTimeout();
  }

  /**
   * Returns whether requests of a method are idempotent, which permits retries.
   *
   * @param method the method
   * @return true for GET, HEAD, OPTIONS, PUT and DELETE
   */
  public static boolean isIdempotent(String method) {
    return IDEMPOTENT.contains(method.toUpperCase(Locale.ROOT));
  }

  Settings settings() {
    return settings;
  }

  Api api() {
    return api;
  }

  Hooks hooks() {
    return hooks;
  }

  Sender sender() {
    return sender;
  }

  boolean isClosed() {
    return closed;
  }

  /**
   * Sends the last report, ends the leases, and stops the threads, which takes 1 s at most.
   * Requests in progress end as usual, but without a retry. A second call does nothing.
   */
  @Override
  public void close() {
    try {
      Runtime.getRuntime().removeShutdownHook(hook);
    } catch (IllegalStateException e) {
      // the process ends
    }
    end();
  }

  private void end() {
    closed = true;
    hooks.close();
    clusters.values().forEach(Cluster::stop);
    try {
      sender.close(Deadline.after(CLOSE_TIMEOUT));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    api.close();
  }
}
