package dev.lbd.client;

import java.util.LinkedHashMap;
import java.util.Map;

/** Values that were used last, by their keys: so many at most. */
final class Recent<K, T> extends LinkedHashMap<K, T> {
  private static final long serialVersionUID = 1L;

  private final int max;

  Recent(int max) {
    super(16, 0.75f, true);
    this.max = max;
  }

  @Override
  protected boolean removeEldestEntry(Map.Entry<K, T> eldest) {
    return size() > max;
  }
}
