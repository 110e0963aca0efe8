package dev.lbd.client;

import java.time.Duration;

/**
 * The drop policy of the cluster rejected the request. Do not retry it: the operator wants less
 * load.
 */
public final class DroppedException extends LbdException {
  private static final long serialVersionUID = 1L;

  DroppedException(String message, String cluster, String code, Duration retryAfter) {
    super(message, cluster, code, retryAfter, null);
  }
}
