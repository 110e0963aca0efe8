package dev.lbd.client;

/** Tokens for the retries of a cluster, as in gRFC A6. Safe for threads. */
final class Budget {
  private static final double REFUND = 0.1;

  private final double first; // max of the first batch
  private volatile double max;
  private volatile double tokens;

  Budget(double max) {
    this.first = max;
    this.max = max;
    this.tokens = max;
  }

  /** Makes it fit a batch of so many picks: a busy process may repeat more. */
  synchronized void fit(int picks) {
    double before = max;
    max = first * Math.max(1.0, (double) picks / Batch.FIRST_PICKS);
    tokens = Math.min(max, tokens + Math.max(0, max - before));
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
