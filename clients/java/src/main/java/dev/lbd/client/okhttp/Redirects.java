package dev.lbd.client.okhttp;

import okhttp3.HttpUrl;
import okhttp3.Response;

/**
 * Keeps OkHttp from following redirects with the Host of the cluster to where it is not valid.
 * Redirects within the cluster become relative, so that OkHttp follows them at the same endpoint.
 */
final class Redirects {
  private static final String LOCATION = "Location";
  private static final String HIDDEN = "Lbd-Client-Location";

  private Redirects() {}

  /** Returns what OkHttp may see of the response to a request that the caller sent to url. */
  static Response hide(Response response, HttpUrl url) {
    String location = response.header(LOCATION);
    if (!response.isRedirect() || location == null) {
      return response;
    }
    HttpUrl target = url.resolve(location);
    boolean same =
        target != null
            && target.scheme().equals(url.scheme())
            && target.host().equals(url.host())
            && target.port() == url.port();
    if (same) {
      String query = target.encodedQuery() == null ? "" : "?" + target.encodedQuery();
      return response.newBuilder().header(LOCATION, target.encodedPath() + query).build();
    }
    return response.newBuilder().removeHeader(LOCATION).header(HIDDEN, location).build();
  }

  /** Returns what the caller sees. */
  static Response show(Response response) {
    String location = response.header(HIDDEN);
    return location == null
        ? response
        : response.newBuilder().removeHeader(HIDDEN).header(LOCATION, location).build();
  }
}
