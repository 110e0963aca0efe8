package dev.lbd.client;

import java.io.FileInputStream;
import java.io.IOException;
import java.net.BindException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** A process that uses the client: Program WHAT URL. It finds lbd by its environment. */
final class Program {
  private Program() {}

  public static void main(String[] args) throws Exception {
    URI url = URI.create(args[1]);
    switch (args[0]) {
      case "late" -> { // java.net.http is in use before the client
        HttpRequest.newBuilder(url).header("Accept", "text/plain");
        try {
          new LbdHttpClient(LbdClient.create());
        } catch (IllegalStateException e) {
          System.out.println(e.getMessage());
        }
      }
      case "batch", "lease" -> {
        Mode mode = Mode.valueOf(args[0].toUpperCase(Locale.ROOT));
        HttpClient http = new LbdHttpClient(LbdClient.builder().mode(mode).build());
        for (int i = 0; i < 3; i++) {
          http.send(HttpRequest.newBuilder(url).build(), BodyHandlers.ofInputStream());
        }
        System.out.println("sent");
        System.in.read();
      }
      case "shortage" -> {
        LbdClient lbd = LbdClient.create();
        HttpClient http = new LbdHttpClient(lbd);
        http.send(HttpRequest.newBuilder(url).build(), BodyHandlers.ofString());
        // Classes in directories, unlike those in jars, need a descriptor when they are loaded.
        lbd.call(lbd.hostOf(url.getHost()).orElseThrow().name(), Deadline.NEVER, true)
            .first()
            .failed(new BindException());
        List<FileInputStream> files = new ArrayList<>();
        for (int failed = 0; failed < 5; ) {
          takeAll(files);
          try {
            http.send(HttpRequest.newBuilder(url).build(), BodyHandlers.ofString());
          } catch (IOException e) {
            System.out.println(e.getMessage());
            failed++;
          }
        }
        for (FileInputStream file : files) {
          file.close();
        }
      }
      default -> throw new IllegalArgumentException(args[0]);
    }
  }

  /** Opens files until there are no descriptors left. */
  private static void takeAll(List<FileInputStream> files) {
    try {
      while (true) {
        files.add(new FileInputStream("/dev/null"));
      }
    } catch (IOException e) {
      // this is the shortage
    }
  }
}
