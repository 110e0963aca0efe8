package dev.lbd.client;

import java.time.Duration;

/** lbd rejected the token, or the token does not permit picks from this cluster. */
public final class PermissionDeniedException extends LbdException {
  private static final long serialVersionUID = 1L;

  PermissionDeniedException(String message, String cluster, String code, Duration retryAfter) {
    super(message, cluster, code, retryAfter, null);
  }
}
