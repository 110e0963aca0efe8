package dev.lbd.client;

/**
 * The batches of a cluster for what requests ask, all of one generation: those that were used last.
 * Safe for threads.
 */
final class Asked {
  /** Begins the part of a query for another try. */
  static final String EXCLUDE = "&exclude=";

  static final int MAX = 1000;

  // Guarded by this.
  private final Recent<String, Batch> batches = new Recent<>(MAX); // by query
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
    }
    if (of == Batch.NO_GENERATION || of == generation) {
      batches.put(batch.query(), batch);
    }
  }

  synchronized void clear() {
    batches.clear();
    generation = Batch.NO_GENERATION;
    last = "";
  }
}
