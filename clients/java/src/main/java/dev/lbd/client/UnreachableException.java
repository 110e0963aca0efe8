package dev.lbd.client;

import java.io.IOException;

/** A call to lbd failed: there is no connection, or no complete answer. */
final class UnreachableException extends IOException {
  private static final long serialVersionUID = 1L;

  UnreachableException(String message, Throwable cause) {
    super(message + ": " + cause, cause);
  }
}
