package dev.lbd.client;

import java.time.Duration;

/** lbd has no endpoint, or is unreachable and the last batch is too old. */
public final class UnavailableException extends LbdException {
  private static final long serialVersionUID = 1L;

  UnavailableException(
      String message, String cluster, String code, Duration retryAfter, Throwable cause) {
    super(message, cluster, code, retryAfter, cause);
  }

  /** Makes the error for a client that got no answer. */
  UnavailableException(String cluster, String reason, Throwable cause) {
    this("cluster " + cluster + ": " + reason, cluster, "", Duration.ZERO, cause);
  }

  /** Makes the error for what is too long for lbd. */
  static UnavailableException tooLong(String cluster, String reason) {
    String message = "cluster " + cluster + ": " + reason + " (invalid_argument)";
    return new UnavailableException(message, cluster, "invalid_argument", Duration.ZERO, null);
  }
}
