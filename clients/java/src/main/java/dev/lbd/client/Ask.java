package dev.lbd.client;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * What one request asks of lbd beside its cluster: {@code Ask.NOTHING.hash(user)}. {@link
 * LbdHttpClient#send(java.net.http.HttpRequest, java.net.http.HttpResponse.BodyHandler, Ask)} takes
 * it; for OkHttp, it is the tag Ask.class of a request.
 *
 * @param hash hash key, of which lbd gets the first 1024 bytes; "" for that which {@link Host} says
 * @param path path that the routes of a target match; "" for that of the request
 * @param headers headers that the routes of a target match; empty for those that {@link Host} says
 * @param choice gets what lbd has chosen before each try, or null
 */
public record Ask(
    String hash, String path, Map<String, List<String>> headers, Consumer<Choice> choice) {
  /** What most requests ask. */
  public static final Ask NOTHING = new Ask("", "", Map.of(), null);

  private static final int MAX_HASH = 1024;

  /**
   * Gives the request a hash key.
   *
   * @param key the key
   * @return what the request asks then
   */
  public Ask hash(String key) {
    return new Ask(key, path, headers, choice);
  }

  /**
   * Gives routes another path than that of the request. One that is the same for many requests
   * makes fewer calls to lbd.
   *
   * @param path the path
   * @return what the request asks then
   */
  public Ask path(String path) {
    return new Ask(hash, path, headers, choice);
  }

  /**
   * Gives routes other headers than those of the request.
   *
   * @param headers the values of each header
   * @return what the request asks then
   */
  public Ask headers(Map<String, List<String>> headers) {
    return new Ask(hash, path, headers, choice);
  }

  /**
   * Gives the program what lbd has chosen, before each try: in the end that of the last one, also
   * if the request fails.
   *
   * @param choice gets it, in any thread, such as {@code AtomicReference::set}
   * @return what the request asks then
   */
  public Ask choice(Consumer<Choice> choice) {
    return new Ask(hash, path, headers, choice);
  }

  /** Returns what lbd has to know for a pick from a cluster or target, as a part of a URL. */
  String query(String name) {
    if (hash.isEmpty() && !Host.isTarget(name)) {
      return "";
    }
    StringBuilder query = new StringBuilder();
    if (!hash.isEmpty()) {
      byte[] key = hash.getBytes(StandardCharsets.UTF_8);
      int length = Math.min(key.length, MAX_HASH);
      query.append("&hash=");
      query.append(
          Api.encode(
              new String(key, 0, length, StandardCharsets.ISO_8859_1),
              StandardCharsets.ISO_8859_1));
    }
    if (Host.isTarget(name)) {
      query.append("&path=").append(Api.encode(path.isEmpty() ? "/" : path));
      new TreeMap<>(headers)
          .forEach(
              (header, values) -> {
                String begin = "&header." + Api.encode(header) + "=";
                values.forEach(value -> query.append(begin).append(Api.encode(value)));
              });
    }
    return query.toString();
  }
}
