package dev.lbd.client;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;

/** A request got no endpoint from lbd. The subclasses say why. */
public abstract sealed class LbdException extends IOException
    permits DroppedException,
        CircuitBrokenException,
        UnavailableException,
        UnknownClusterException,
        PermissionDeniedException {
  private static final long serialVersionUID = 1L;

  /** The cluster of the request. */
  private final String cluster;

  /** The code of lbd's answer, or "". */
  private final String code;

  /** How long lbd asks to wait. */
  private final Duration retryAfter;

  LbdException(String message, String cluster, String code, Duration retryAfter, Throwable cause) {
    super(message, cause);
    this.cluster = cluster;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  /**
   * Returns the cluster of the request.
   *
   * @return the name of the cluster
   */
  public final String cluster() {
    return cluster;
  }

  /**
   * Returns the code of lbd's answer.
   *
   * @return the code, or "" if lbd did not answer
   */
  public final String code() {
    return code;
  }

  /**
   * Returns how long lbd asks to wait before the next request.
   *
   * @return the time, or zero
   */
  public final Duration retryAfter() {
    return retryAfter;
  }

  /** Returns a copy with the stack trace of this thread: one refusal of a batch is thrown often. */
  final LbdException copy() {
    return of(getClass(), getMessage(), cluster, code, retryAfter, getCause());
  }

  /** Returns whether lbd rejects the name or the token: the same call would not help soon. */
  final boolean isFinal() {
    return this instanceof UnknownClusterException
        || this instanceof PermissionDeniedException
        || code.equals("invalid_argument");
  }

  /** Returns the error for an answer of lbd that rejects. Problem is its body (RFC 9457). */
  static LbdException ofAnswer(
      String cluster, int status, Map<String, Object> problem, Duration wait) {
    String code = problem.get("code") instanceof String text ? text : "";
    Class<? extends LbdException> kind =
        switch (code) {
          case "dropped" -> DroppedException.class;
          case "circuit_broken" -> CircuitBrokenException.class;
          case "unknown_cluster", "unknown_target" -> UnknownClusterException.class;
          case "permission_denied", "unauthenticated" -> PermissionDeniedException.class;
          default ->
              status == 401 || status == 403
                  ? PermissionDeniedException.class
                  : UnavailableException.class;
        };
    Object detail = problem.getOrDefault("detail", problem.getOrDefault("title", null));
    String message =
        "cluster "
            + cluster
            + ": "
            + Objects.requireNonNullElse(detail, "status " + status)
            + (code.isEmpty() ? "" : " (" + code + ")");
    return of(kind, message, cluster, code.isEmpty() ? "" + status : code, wait, null);
  }

  private static LbdException of(
      Class<? extends LbdException> kind,
      String message,
      String cluster,
      String code,
      Duration wait,
      Throwable cause) {
    if (kind == DroppedException.class) {
      return new DroppedException(message, cluster, code, wait);
    }
    if (kind == CircuitBrokenException.class) {
      return new CircuitBrokenException(message, cluster, code, wait);
    }
    if (kind == UnknownClusterException.class) {
      return new UnknownClusterException(message, cluster, code, wait);
    }
    if (kind == PermissionDeniedException.class) {
      return new PermissionDeniedException(message, cluster, code, wait);
    }
    return new UnavailableException(message, cluster, code, wait, cause);
  }
}
