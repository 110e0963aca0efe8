package dev.lbd.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads JSON as RFC 8259 defines it, and nothing else. Objects are maps, arrays are lists, numbers
 * without fraction or exponent are Long if they fit, other numbers are Double.
 */
final class Json {
  private static final int MAX_DEPTH = 64;

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** Returns the object in the bytes. Throws IllegalArgumentException if they are anything else. */
  static Map<String, Object> object(byte[] bytes) {
    try {
      var decoder = StandardCharsets.UTF_8.newDecoder();
      Json json = new Json(decoder.decode(ByteBuffer.wrap(bytes)).toString());
      json.space();
      Map<String, Object> object = json.object(0);
      json.space();
      if (json.at != json.text.length()) {
        throw json.unexpected();
      }
      return object;
    } catch (CharacterCodingException e) {
      throw new IllegalArgumentException("not UTF-8", e);
    }
  }

  /** Returns a string as JSON, in its quotes. */
  static String quote(String text) {
    StringBuilder quoted = new StringBuilder(text.length() + 2).append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        quoted.append('\\').append(c);
      } else if (c < ' ' || Character.isSurrogate(c)) {
        quoted.append(String.format("\\u%04x", (int) c));
      } else {
        quoted.append(c);
      }
    }
    return quoted.append('"').toString();
  }

  private Object value(int depth) {
    if (depth > MAX_DEPTH) {
      throw new IllegalArgumentException("deeper than " + MAX_DEPTH);
    }
    return switch (peek()) {
      case '{' -> object(depth);
      case '[' -> array(depth);
      case '"' -> string();
      case 't' -> word("true", true);
      case 'f' -> word("false", false);
      case 'n' -> word("null", null);
      default -> number();
    };
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> object = new LinkedHashMap<>();
    expect('{');
    space();
    if (accept('}')) {
      return object;
    }
    do {
      space();
      String key = string();
      space();
      expect(':');
      space();
      object.put(key, value(depth + 1));
      space();
    } while (accept(','));
    expect('}');
    return object;
  }

  private List<Object> array(int depth) {
    List<Object> array = new ArrayList<>();
    expect('[');
    space();
    if (accept(']')) {
      return array;
    }
    do {
      space();
      array.add(value(depth + 1));
      space();
    } while (accept(','));
    expect(']');
    return array;
  }

  private String string() {
    expect('"');
    StringBuilder string = new StringBuilder();
    while (true) {
      char c = next();
      if (c == '"') {
        return string.toString();
      }
      if (c < ' ') {
        at--;
        throw unexpected();
      }
      string.append(c == '\\' ? escape() : c);
    }
  }

  private char escape() {
    char c = next();
    switch (c) {
      case '"', '\\', '/':
        return c;
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'u':
        int code = 0;
        for (int i = 0; i < 4; i++) {
          char hex = next();
          int digit = hex < 128 ? Character.digit(hex, 16) : -1;
          if (digit < 0) {
            at--;
            throw unexpected();
          }
          code = code * 16 + digit;
        }
        return (char) code;
      default:
        at--;
        throw unexpected();
    }
  }

  private Object number() {
    int begin = at;
    accept('-');
    if (!accept('0')) {
      digits();
    }
    boolean whole = true;
    if (accept('.')) {
      whole = false;
      digits();
    }
    if (accept('e') || accept('E')) {
      whole = false;
      if (!accept('+')) {
        accept('-');
      }
      digits();
    }
    String number = text.substring(begin, at);
    if (whole) {
      try {
        return Long.valueOf(number);
      } catch (NumberFormatException e) {
        return Double.valueOf(number); // more than 63 bits
      }
    }
    return Double.valueOf(number);
  }

  private void digits() {
    int begin = at;
    while (peek() >= '0' && peek() <= '9') {
      at++;
    }
    if (at == begin) {
      throw unexpected();
    }
  }

  private Object word(String word, Object value) {
    if (!text.startsWith(word, at)) {
      throw unexpected();
    }
    at += word.length();
    return value;
  }

  private void space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') {
      at++;
    }
  }

  /** Returns the next character, or 0 at the end. */
  private char peek() {
    return at < text.length() ? text.charAt(at) : 0;
  }

  private char next() {
    if (at >= text.length()) {
      throw unexpected();
    }
    return text.charAt(at++);
  }

  private boolean accept(char c) {
    if (at < text.length() && text.charAt(at) == c) {
      at++;
      return true;
    }
    return false;
  }

  private void expect(char c) {
    if (!accept(c)) {
      throw unexpected();
    }
  }

  private IllegalArgumentException unexpected() {
    String found = at < text.length() ? "unexpected character" : "unexpected end";
    return new IllegalArgumentException(found + " at position " + at);
  }
}
