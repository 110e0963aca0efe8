package dev.lbd.client;

import java.time.Duration;

/** The circuit breaker of the cluster is full. Do not retry at once. */
public final class CircuitBrokenException extends LbdException {
  private static final long serialVersionUID = 1L;

  CircuitBrokenException(String message, String cluster, String code, Duration retryAfter) {
    super(message, cluster, code, retryAfter, null);
  }
}
