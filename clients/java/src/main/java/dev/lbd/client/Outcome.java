package dev.lbd.client;

import java.util.Locale;

/** How a request ended. */
enum Outcome {
  SUCCESS,
  ERROR,
  CANCELLED;

  /** Returns the name that lbd uses. */
  String wire() {
    return name().toLowerCase(Locale.ROOT);
  }
}
