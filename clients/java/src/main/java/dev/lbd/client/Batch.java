package dev.lbd.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/** The picks of one answer of lbd, shuffled. Requests take them in turn. Safe for threads. */
final class Batch {
  /** The generation of a batch of refusals: lbd does not say it then. */
  static final long NO_GENERATION = -1;

  private static final Pattern ADDRESS =
      Pattern.compile("(\\[[0-9a-fA-F:.]+]|[A-Za-z0-9._-]+):[0-9]{1,5}");

  /** The picks of the first batch of a cluster. */
  static final int FIRST_PICKS = 100;

  /** The picks that lbd gives at once, at most. */
  static final int MAX_PICKS = 1000;

  private static final int DRAWS = 8;

  private final String query;
  private final Deadline end;
  private final Element[] elements;
  private final Set<String> addresses;
  private final long generation;
  private final long made = System.nanoTime();
  private final AtomicInteger turn = new AtomicInteger();

  /**
   * Either choice and counts or refusal is null.
   *
   * @param choice where the request goes
   * @param counts of the cluster that it goes to
   * @param refusal why the request does not go anywhere
   */
  record Element(Choice choice, Counts counts, LbdException refusal) {
    /** Returns where the request goes, or null. */
    String address() {
      return choice == null ? null : choice.address();
    }
  }

  private Batch(String query, Duration lasts, long generation, List<Element> elements) {
    Collections.shuffle(elements);
    this.query = query;
    this.end = Deadline.after(lasts);
    this.generation = generation;
    this.elements = elements.toArray(Element[]::new);
    this.addresses = new HashSet<>();
    for (Element element : elements) {
      if (element.choice != null) {
        addresses.add(element.choice.address());
      }
    }
  }

  /**
   * Returns the batch in the answer to a pick with n, or throws IllegalArgumentException.
   *
   * @param name the cluster or target
   * @param query what requests ask
   * @param lasts time for which it is used while lbd answers
   * @param counts returns those of a cluster
   */
  static Batch ofAnswer(
      String name,
      String query,
      Duration lasts,
      Map<String, Object> answer,
      Function<String, Counts> counts) {
    List<Element> elements = new ArrayList<>();
    if (!(answer.get("picks") instanceof List<?> picks)
        || !(answer.get("generation") instanceof Long generation)) {
      throw new IllegalArgumentException("an answer without picks or generation");
    }
    if (picks.size() > MAX_PICKS) {
      throw new IllegalArgumentException("more than " + MAX_PICKS + " picks");
    }
    Map<Choice, Element> distinct = new HashMap<>();
    String cluster = name;
    for (Object pick : picks) {
      Choice choice = Choice.ofPick(name, pick);
      cluster = choice.cluster();
      elements.add(
          distinct.computeIfAbsent(
              choice, one -> new Element(one, counts.apply(one.cluster()), null)));
    }
    if (answer.get("dropped") instanceof Map<?, ?> dropped) {
      for (Map.Entry<?, ?> entry : dropped.entrySet()) {
        String message =
            "cluster " + cluster + ": drop category " + entry.getKey() + " dropped the request";
        LbdException refusal = new DroppedException(message, cluster, "dropped", Duration.ZERO);
        refuse(elements, entry.getValue(), refusal);
      }
    }
    String message = "cluster " + cluster + ": the circuit breaker is full";
    LbdException refusal =
        new CircuitBrokenException(message, cluster, "circuit_broken", Duration.ZERO);
    refuse(elements, answer.getOrDefault("circuit_broken", 0L), refusal);
    if (elements.isEmpty()) {
      throw new IllegalArgumentException("a batch without picks");
    }
    return new Batch(query, lasts, generation, elements);
  }

  /** Returns a batch of nothing but a refusal: lbd refused each pick. */
  static Batch ofRefusal(String query, Duration lasts, LbdException refusal) {
    Element element = new Element(null, null, refusal);
    return new Batch(query, lasts, NO_GENERATION, new ArrayList<>(List.of(element)));
  }

  /** Returns whether a text is HOST:PORT or [IPV6]:PORT. */
  static boolean isAddress(String text) {
    return ADDRESS.matcher(text).matches();
  }

  /** Adds a refusal for each of number picks. */
  private static void refuse(List<Element> elements, Object number, LbdException refusal) {
    if (!(number instanceof Long count) || count < 0 || count > MAX_PICKS - elements.size()) {
      throw new IllegalArgumentException("a count that is not valid");
    }
    elements.addAll(Collections.nCopies(count.intValue(), new Element(null, null, refusal)));
  }

  String query() {
    return query;
  }

  /** Returns when it is time for a new one. */
  Deadline end() {
    return end;
  }

  long generation() {
    return generation;
  }

  Set<String> addresses() {
    return addresses;
  }

  /** Returns how many nanoseconds old it is. */
  long age() {
    return System.nanoTime() - made;
  }

  /** Returns how many elements were taken. */
  long taken() {
    return Integer.toUnsignedLong(turn.get());
  }

  /** Returns the next element whose address is not avoided: of the others, each keeps its share. */
  Element take(Asides asides) {
    Element element = next();
    for (int i = 1; i < 2 * elements.length; i++) { // other threads take some
      if (element.choice == null || !asides.avoids(element.choice.address())) {
        break;
      }
      element = next();
    }
    return element;
  }

  private Element next() {
    return elements[Integer.remainderUnsigned(turn.getAndIncrement(), elements.length)];
  }

  /** Returns an element whose address is accepted, drawn so that each keeps its share, or null. */
  Element draw(Predicate<String> accepted) {
    ThreadLocalRandom random = ThreadLocalRandom.current();
    int n = elements.length;
    int first = random.nextInt(n);
    IntStream all = IntStream.range(first, first + n).map(i -> i % n);
    return IntStream.concat(random.ints(DRAWS, 0, n), all)
        .mapToObj(i -> elements[i])
        .filter(element -> element.choice != null && accepted.test(element.choice.address()))
        .findFirst()
        .orElse(null);
  }
}
