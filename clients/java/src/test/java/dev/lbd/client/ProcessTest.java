package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;

/** What becomes of a client when its process ends, with real processes. */
class ProcessTest {
  private Daemon daemon;
  private Upstream upstream;
  private Process process;
  private BufferedReader output;
  private String cluster;

  @BeforeEach
  void start(TestInfo test) throws Exception {
    cluster = test.getTestMethod().orElseThrow().getName().toLowerCase(Locale.ROOT);
    daemon = new Daemon();
    upstream =
        new Upstream(
            e -> {
              e.getResponseHeaders().set("Connection", "close"); // each request needs a new one
              Upstream.reply(e, 200, "x".repeat(4 << 20));
            });
    daemon.push(cluster, upstream.address());
  }

  @AfterEach
  void end() throws IOException {
    if (process != null) {
      process.destroyForcibly();
    }
    daemon.signal("CONT");
    daemon.close();
    upstream.close();
  }

  private void run(String what, String... prefix) throws IOException {
    start(List.of(prefix), Program.class.getName(), what);
  }

  private void start(List<String> prefix, String... program) throws IOException {
    List<String> command = new ArrayList<>(prefix);
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("-cp");
    command.add(
        System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
    command.add("-XX:-MaxFDLimit");
    command.addAll(List.of(program));
    command.add("http://" + cluster + ".lbd/");
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().put("LBD", daemon.lbd());
    process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    output = process.inputReader(StandardCharsets.UTF_8);
  }

  private int exit() throws InterruptedException {
    assertTrue(process.waitFor(120, TimeUnit.SECONDS), "the process ends");
    return process.exitValue();
  }

  @Test
  void reportsWhenMainReturns() throws Exception {
    run("batch");
    assertEquals("sent", output.readLine());
    process.getOutputStream().close();
    assertEquals(0, exit());
    assertEquals(3, daemon.reported(cluster, "success"));
  }

  @Test
  void reportsAtSigterm() throws Exception {
    run("batch");
    assertEquals("sent", output.readLine());
    process.toHandle().destroy(); // unlike destroy, it leaves the input open
    assertEquals(128 + 15, exit());
    assertEquals(3, daemon.reported(cluster, "success"));
  }

  @Test
  void endsLeases() throws Exception {
    run("lease");
    assertEquals("sent", output.readLine());
    assertEquals(3, daemon.inFlight(cluster));
    process.getOutputStream().close();
    assertEquals(0, exit());
    assertEquals(0, daemon.inFlight(cluster));
  }

  @Test
  void endsWhileLbdHangs() throws Exception {
    run("lease");
    assertEquals("sent", output.readLine());
    daemon.signal("STOP");
    process.getOutputStream().close();
    assertEquals(0, exit());
  }

  @Test
  void saysThatItIsTooLateForHost() throws Exception {
    run("late");
    String message = output.readLine();
    assertTrue(message.contains("-Djdk.httpclient.allowRestrictedHeaders=host"), message);
    assertEquals(0, exit());
  }

  @Test
  void blamesNoEndpointForItsOwnShortage() throws Exception {
    run("shortage", "sh", "-c", "ulimit -n 100; exec \"$@\"", "sh");
    for (int i = 0; i < 5; i++) {
      String line = output.readLine();
      assertTrue(line.contains("Too many open files"), line);
    }
    assertEquals(0, exit());
    assertEquals(0, daemon.reported(cluster, "error"));
    assertTrue(daemon.reported(cluster, "success") >= 1);
    assertEquals(6, daemon.reported(cluster, "cancelled"));
  }

  @Test
  void runsTheExample() throws Exception {
    upstream.close();
    upstream = new Upstream();
    daemon.push(cluster, upstream.address());
    start(List.of(), "examples/Orders.java");
    for (int i = 0; i < 10; i++) {
      assertEquals("200 " + upstream.address(), output.readLine());
    }
    assertEquals(0, exit());
    assertEquals(10, daemon.reported(cluster, "success"));
  }
}
