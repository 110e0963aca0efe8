package dev.lbd.client;

/** Tokens for the retries of a cluster, as in gRFC A6. Safe for threads. */
final class Budget {
  private static final double REFUND = 0.1;

  private final double max;
  private volatile double tokens;

  Budget(double max) {
    this.max = max;
    this.tokens = max;
  }

  /** Takes a token, and returns whether a retry is permitted. */
  synchronized boolean failed() {
    tokens = Math.max(0, tokens - 1);
    return tokens > max / 2;
  }

  void succeeded() {
    if (tokens < max) {
      synchronized (this) {
        tokens = Math.min(max, tokens + REFUND);
      }
    }
  }
}
