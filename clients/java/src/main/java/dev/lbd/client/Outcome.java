package dev.lbd.client;

import java.util.Locale;

/** How a request ended. */
enum Outcome {
  SUCCESS,
  ERROR,
  CANCELLED,
  /** There was no connection: nothing was sent. */
  UNREACHABLE;

  /** Returns the name that lbd uses. */
  String wire() {
    return name().toLowerCase(Locale.ROOT);
  }
}
