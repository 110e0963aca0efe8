package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;

/** A real daemon for the tests of a class, and what each test opens. */
abstract class Stand {
  static final Duration TIMEOUT = Duration.ofSeconds(10);

  static Daemon daemon;

  private final Deque<AutoCloseable> open = new ArrayDeque<>();
  String cluster;
  String url;

  @BeforeAll
  static void startDaemon() throws Exception {
    daemon = new Daemon();
  }

  @AfterAll
  static void endDaemon() throws Exception {
    daemon.close();
  }

  @BeforeEach
  void name(TestInfo test) {
    String name = getClass().getSimpleName() + "-" + test.getTestMethod().orElseThrow().getName();
    cluster = name.toLowerCase(Locale.ROOT);
    url = "http://" + cluster + ".lbd";
  }

  @AfterEach
  void close() throws Exception {
    while (!open.isEmpty()) {
      open.pop().close();
    }
  }

  <T extends AutoCloseable> T closing(T resource) {
    open.push(resource);
    return resource;
  }

  LbdClient client(Mode mode) {
    return client(LbdClient.builder().mode(mode));
  }

  LbdClient client(LbdClientBuilder settings) {
    return closing(settings.address(daemon.lbd()).build());
  }

  List<Upstream> upstreams(Upstream.Behavior... behaviors) throws IOException {
    List<Upstream> upstreams = new ArrayList<>();
    for (Upstream.Behavior behavior : behaviors) {
      upstreams.add(closing(new Upstream(behavior)));
    }
    daemon.push(cluster, upstreams.stream().map(Upstream::address).toArray(String[]::new));
    return upstreams;
  }
}
