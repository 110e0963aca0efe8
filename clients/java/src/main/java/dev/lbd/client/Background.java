package dev.lbd.client;

/** Threads of the client. */
final class Background {
  private Background() {}

  /**
   * Returns a thread that does not keep the process alive, and does not hold what belongs to the
   * request that starts it: inheritable thread locals, and the context class loader.
   */
  static Thread thread(String name, Runnable task) {
    Thread thread = new Thread(null, task, name, 0, false);
    thread.setContextClassLoader(Background.class.getClassLoader());
    thread.setDaemon(true);
    return thread;
  }
}
