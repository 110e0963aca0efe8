package dev.lbd.client;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Function;

/** Values that were used last, by their keys. Safe for threads. */
final class Recent<K, T> {
  private final int max;
  private final Function<K, T> make;
  private final Map<K, T> values = new LinkedHashMap<>(16, 0.75f, true); // guarded by this

  /** Keeps so many values at most, which a function makes of their keys. */
  Recent(int max, Function<K, T> make) {
    this.max = max;
    this.make = make;
  }

  synchronized T get(K key) {
    T value = values.computeIfAbsent(key, make);
    if (values.size() > max) {
      values.remove(values.keySet().iterator().next());
    }
    return value;
  }
}
