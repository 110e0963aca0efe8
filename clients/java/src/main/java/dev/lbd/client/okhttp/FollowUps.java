package dev.lbd.client.okhttp;

import java.util.List;
import okhttp3.HttpUrl;
import okhttp3.Response;

/**
 * Keeps OkHttp from sending requests again by itself: with the Host of the cluster to where it is
 * not valid, or past the budget of retries. Redirects within the cluster become relative, so that
 * OkHttp follows them at the same endpoint. Other headers that OkHttp would act on are hidden.
 */
final class FollowUps {
  private static final String LOCATION = "Location";
  private static final String RETRY_AFTER = "Retry-After";
  private static final List<String> HIDDEN = List.of(LOCATION, RETRY_AFTER);
  private static final String PREFIX = "Lbd-Client-";

  private FollowUps() {}

  /** Returns what OkHttp may see of the response to a request that the caller sent to url. */
  static Response hide(Response response, HttpUrl url) {
    if (response.code() == 503) {
      return hide(response, RETRY_AFTER); // OkHttp repeats the request if it is 0
    }
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
    if (!same) {
      return hide(response, LOCATION);
    }
    String query = target.encodedQuery() == null ? "" : "?" + target.encodedQuery();
    return response.newBuilder().header(LOCATION, target.encodedPath() + query).build();
  }

  private static Response hide(Response response, String name) {
    return move(response, name, PREFIX + name);
  }

  /** Returns what the caller sees. */
  static Response show(Response response) {
    Response shown = response;
    for (String name : HIDDEN) {
      shown = move(shown, PREFIX + name, name);
    }
    return shown;
  }

  private static Response move(Response response, String from, String to) {
    String value = response.header(from);
    return value == null
        ? response
        : response.newBuilder().removeHeader(from).header(to, value).build();
  }
}
