package dev.lbd.client;

import java.net.BindException;
import java.util.regex.Pattern;

/** Failures that are due to a shortage of this process or machine: no endpoint is to blame. */
final class Shortage {
  // The JDK has no errno: these are the messages of EMFILE, ENFILE, ENOMEM, ENOBUFS, EADDRNOTAVAIL.
  private static final Pattern MESSAGES =
      Pattern.compile(
          "Too many open files|Cannot allocate memory|No buffer space available"
              + "|Cannot assign requested address|Can't assign requested address");
  private static final int MAX_CAUSES = 10;

  private Shortage() {}

  static boolean causes(Throwable error) {
    for (int i = 0; error != null && i < MAX_CAUSES; i++) {
      String message = error.getMessage();
      if (error instanceof VirtualMachineError
          || error instanceof BindException
          || (message != null && MESSAGES.matcher(message).find())) {
        return true;
      }
      error = error.getCause();
    }
    return false;
  }
}
