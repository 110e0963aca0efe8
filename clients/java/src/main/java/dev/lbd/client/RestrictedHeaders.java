package dev.lbd.client;

import java.net.URI;
import java.net.http.HttpRequest;

/** The permission to set Host in requests of java.net.http, which the JDK reads once. */
final class RestrictedHeaders {
  private static final String PROPERTY = "jdk.httpclient.allowRestrictedHeaders";

  private RestrictedHeaders() {}

  /** Permits it, unless java.net.http has read the property before. */
  static void allowHost() {
    try {
      synchronized (RestrictedHeaders.class) {
        String allowed = System.getProperty(PROPERTY, "");
        if (!allowed.matches("(?i)(.*,)?\\s*host\\s*(,.*)?")) {
          System.setProperty(PROPERTY, allowed.isBlank() ? "host" : allowed + ",host");
        }
      }
    } catch (SecurityException e) {
      // checkHost will say what to do
    }
  }

  /** Throws IllegalStateException if requests cannot have their own Host. */
  static void checkHost() {
    try {
      HttpRequest.newBuilder(URI.create("http://orders.lbd/")).header("Host", "orders.lbd");
    } catch (IllegalArgumentException e) {
      throw new IllegalStateException(
          "java.net.http was in use before the first LbdClient: create the LbdClient first, or start"
              + " Java with -D"
              + PROPERTY
              + "=host",
          e);
    }
  }
}
