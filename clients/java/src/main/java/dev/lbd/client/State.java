package dev.lbd.client;

/** How calls of a client to lbd end. */
public enum State {
  /** lbd has answered again. */
  RECOVERED,
  /** A call to lbd has failed. In {@link Mode#BATCH}, requests go on with the last batch. */
  UNREACHABLE,
  /** The last batch is too old as well: requests fail, or go to the fallback. */
  STALE
}
