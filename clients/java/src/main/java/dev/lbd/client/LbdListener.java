package dev.lbd.client;

/**
 * Is called by a client, in any thread, also by several at the same time. What it does takes the
 * time of a request. What it throws is caught.
 */
public interface LbdListener {
  /**
   * Is called when a request begins, in the thread of its caller.
   *
   * @return what {@link Attempted#context} is, such as the current span
   */
  default Object onRequest() {
    return null;
  }

  /**
   * Is called when a try has ended, before the next one begins and before the request returns.
   *
   * @param attempt the try
   */
  default void onAttempt(Attempted attempt) {}

  /**
   * Is called when calls to lbd end in another way than before.
   *
   * @param state how they end now
   */
  default void onState(State state) {}
}
