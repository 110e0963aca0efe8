package dev.lbd.client;

import java.util.Map;

/**
 * What lbd has chosen for a try of a request.
 *
 * @param cluster the cluster: of a target, the one that its routes chose
 * @param address HOST:PORT or [IPV6]:PORT of the endpoint
 * @param hostname host name of the endpoint, or ""
 * @param locality where the endpoint is
 * @param priority priority of the locality
 * @param attempt number of the try, 1 for the first one
 */
public record Choice(
    String cluster, String address, String hostname, Locality locality, int priority, int attempt) {
  /**
   * Where an endpoint is.
   *
   * @param region region, or ""
   * @param zone zone, or ""
   * @param subZone part of the zone, or ""
   */
  public record Locality(String region, String zone, String subZone) {}

  /** Returns what is known of an address that is not from lbd. */
  static Choice fallback(String cluster, String address) {
    return new Choice(cluster, address, "", new Locality("", "", ""), 0, 0);
  }

  /**
   * Returns what an answer of lbd to a pick for a cluster or target says, or throws
   * IllegalArgumentException.
   */
  static Choice ofPick(String name, Object pick) {
    Map<?, ?> fields = object(pick);
    String address = text(fields, "address");
    String cluster = text(fields, "cluster");
    if (cluster.isEmpty() && !Host.isTarget(name)) {
      cluster = name;
    }
    if (!Batch.isAddress(address) || cluster.isEmpty()) {
      throw new IllegalArgumentException("a pick without a valid address or cluster");
    }
    Map<?, ?> place = object(fields.get("locality"));
    Locality locality =
        new Locality(text(place, "region"), text(place, "zone"), text(place, "sub_zone"));
    int priority = fields.get("priority") instanceof Long number ? number.intValue() : 0;
    return new Choice(cluster, address, text(fields, "hostname"), locality, priority, 0);
  }

  private static Map<?, ?> object(Object value) {
    return value instanceof Map<?, ?> map ? map : Map.of();
  }

  private static String text(Map<?, ?> fields, String name) {
    return fields.get(name) instanceof String text ? text : "";
  }

  Choice numbered(int number) {
    return new Choice(cluster, address, hostname, locality, priority, number);
  }
}
