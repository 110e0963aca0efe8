package dev.lbd.client;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The batches of a cluster for what requests ask, all of one generation: those that were used last.
 * Safe for threads.
 */
final class Asked {
  /** Begins the part of a query for another try. */
  static final String EXCLUDE = "&exclude=";

  static final int MAX = 1000;
  static final int MAX_BYTES = 4 * 1024 * 1024; // of queries

  // Guarded by this.
  private final Map<String, Batch> batches = new LinkedHashMap<>(16, 0.75f, true); // by query
  private int bytes;
  private long generation = Batch.NO_GENERATION;
  private String last = "";

  /** Returns the batch for a query, or null. */
  synchronized Batch get(String query) {
    Batch known = batches.get(query);
    if (known != null || last.isEmpty()) {
      answered(query);
    }
    return known;
  }

  private void answered(String query) {
    last = query.contains(EXCLUDE) ? last : query;
  }

  /**
   * Returns the query that lbd has answered last, without those for other tries; before any answer,
   * the first one.
   */
  synchronized String last() {
    return last;
  }

  /**
   * Adds a batch. One of a later generation replaces all others, and so does one that is published,
   * which is of the generation that lbd has. One of an earlier generation comes too late.
   */
  synchronized void put(Batch batch, boolean published) {
    answered(batch.query());
    long of = batch.generation();
    if (of != Batch.NO_GENERATION && (of > generation || (published && of != generation))) {
      generation = of;
      batches.clear();
      bytes = 0;
    }
    if (of == Batch.NO_GENERATION || of == generation) {
      bytes += batches.put(batch.query(), batch) == null ? batch.query().length() : 0;
    }
    var oldest = batches.keySet().iterator();
    while (batches.size() > MAX || bytes > MAX_BYTES) {
      bytes -= oldest.next().length();
      oldest.remove();
    }
  }

  synchronized void clear() {
    batches.clear();
    bytes = 0;
    generation = Batch.NO_GENERATION;
    last = "";
  }
}
