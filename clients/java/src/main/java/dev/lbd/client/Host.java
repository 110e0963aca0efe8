package dev.lbd.client;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;

/**
 * What requests to a host are for: a cluster, or a target, whose routes choose the cluster.
 *
 * @param name name of the cluster, or xds:///NAME for a target
 * @param headers of a target, the headers that its routes match, or that their hash policies need:
 *     others are not sent to lbd
 * @param hash where the hash key of a request is, header:NAME or cookie:NAME; "" for nowhere
 */
public record Host(String name, List<String> headers, String hash) {
  private static final String TARGET = "xds:///";

  /**
   * Checks the fields.
   *
   * @param name name of the cluster, or xds:///NAME for a target
   * @param headers names of headers
   * @param hash where the hash key is, or ""
   */
  public Host {
    headers = List.copyOf(headers);
    if (!hash.isEmpty() && !hash.matches("(header|cookie):.+")) {
      throw new IllegalArgumentException(
          "hash: \"" + hash + "\" is not header:NAME or cookie:NAME");
    }
  }

  /**
   * Returns the requests to a cluster.
   *
   * @param name name of the cluster
   * @return what requests to the host are for
   */
  public static Host cluster(String name) {
    return new Host(name, List.of(), "");
  }

  /**
   * Returns the requests to a target, whose routes choose the cluster by the path, and by headers.
   *
   * @param name name of the target
   * @param headers names of headers
   * @return what requests to the host are for
   */
  public static Host target(String name, String... headers) {
    return new Host(isTarget(name) ? name : TARGET + name, List.of(headers), "");
  }

  /**
   * Gives requests the hash key that they have in a header or cookie.
   *
   * @param where header:NAME or cookie:NAME
   * @return what requests to the host are for
   */
  public Host hash(String where) {
    return new Host(name, headers, where);
  }

  /** Returns whether a name is that of a target. */
  static boolean isTarget(String name) {
    return name.startsWith(TARGET);
  }

  /** Returns the parameter of a pick. */
  static String parameter(String name) {
    return isTarget(name)
        ? "target=" + Api.encode(name.substring(TARGET.length()))
        : "cluster=" + Api.encode(name);
  }

  /**
   * Returns all that a request asks.
   *
   * @param ask what the program asks for it; null for nothing
   * @param path path of the request, as in the request line
   * @param header returns the values of a header of the request
   * @return what it asks
   */
  public Ask ask(Ask ask, String path, Function<String, List<String>> header) {
    Ask asks = ask == null ? Ask.NOTHING : ask;
    if (asks.hash().isEmpty() && !hash.isEmpty()) {
      asks = asks.hash(key(header));
    }
    if (isTarget(name)) {
      if (asks.path().isEmpty()) {
        asks = asks.path(path);
      }
      if (asks.headers().isEmpty() && !headers.isEmpty()) {
        Map<String, List<String>> sent = new TreeMap<>();
        headers.forEach(one -> sent.put(one, header.apply(one)));
        asks = asks.headers(sent);
      }
    }
    return asks;
  }

  /** Returns the hash key of a request, or "". */
  private String key(Function<String, List<String>> header) {
    String field = hash.substring("header:".length()); // or cookie:
    if (hash.startsWith("header:")) {
      return header.apply(field).stream().findFirst().orElse("");
    }
    for (String cookies : header.apply("Cookie")) {
      for (String cookie : cookies.split(";")) {
        if (cookie.strip().startsWith(field + "=")) {
          String value = cookie.strip().substring(field.length() + 1);
          return value.replaceFirst("^\"(.*)\"$", "$1");
        }
      }
    }
    return "";
  }
}
