package dev.lbd.client;

import java.time.Duration;

/** lbd does not know the cluster, or the target. */
public final class UnknownClusterException extends LbdException {
  private static final long serialVersionUID = 1L;

  UnknownClusterException(String message, String cluster, String code, Duration retryAfter) {
    super(message, cluster, code, retryAfter, null);
  }
}
