package dev.lbd.client;

import java.util.Locale;

/** How a try of a request ended, as lbd hears it. */
public enum Outcome {
  /** It was answered, with any status below 500. */
  SUCCESS,
  /** It was not answered in time, or with a status from 500 on. */
  ERROR,
  /**
   * Its caller has given it up, its deadline passed while a connection was made, or this machine is
   * to blame.
   */
  CANCELLED,
  /** There was no connection: nothing was sent. */
  UNREACHABLE;

  /** Returns the name that lbd uses. */
  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }
}
