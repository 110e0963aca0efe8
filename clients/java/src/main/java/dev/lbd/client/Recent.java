package dev.lbd.client;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Function;

/** Values that were used last, by their names. Safe for threads. */
final class Recent<T> {
  private final int max;
  private final Function<String, T> make;
  private final Map<String, T> values = new LinkedHashMap<>(16, 0.75f, true); // guarded by this

  /** Keeps so many values at most, which a function makes of their names. */
  Recent(int max, Function<String, T> make) {
    this.max = max;
    this.make = make;
  }

  synchronized T get(String name) {
    T value = values.computeIfAbsent(name, make);
    if (values.size() > max) {
      values.remove(values.keySet().iterator().next());
    }
    return value;
  }
}
