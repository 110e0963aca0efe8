package dev.lbd.client;

/** How a client gets picks. */
public enum Mode {
  /** Takes the next of 100 picks, and reports every few seconds how requests ended. The default. */
  BATCH,
  /** One pick for each request, for processes that live for one request. Nothing is reported. */
  PICK,
  /** One lease for each request: exact circuit breaking and least_request. */
  LEASE
}
