package dev.lbd.client;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.ProtocolException;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A complete answer of an HTTP/1.1 server.
 *
 * @param status from 200 on
 * @param headers by their names in lower case; the last one of each name
 * @param body all of it
 */
record HttpAnswer(int status, Map<String, String> headers, byte[] body) {
  private static final int MAX_LINES = 256 << 10;
  private static final int MAX_BODY = 16 << 20;
  private static final Pattern STATUS = Pattern.compile("HTTP/1\\.1 ([1-9][0-9]{2})( .*)?");
  private static final Pattern LENGTH = Pattern.compile("[0-9]{1,9}");
  private static final Pattern CHUNK = Pattern.compile("([0-9a-fA-F]{1,7})[ \\t]*(;.*)?");

  /** Returns whether the connection can be used for another request. */
  boolean reusable() {
    return !"close".equalsIgnoreCase(headers.get("connection"));
  }

  /**
   * Reads an answer, whose first byte has been read. Throws IOException unless the answer is
   * complete and has one clear end.
   */
  static HttpAnswer read(int first, InputStream in) throws IOException {
    Reader reader = new Reader(first, in);
    while (true) {
      int status = reader.status();
      Map<String, String> headers = reader.headers();
      if (status < 200) {
        continue;
      }
      return new HttpAnswer(status, headers, reader.body(status, headers));
    }
  }

  private static final class Reader {
    private final InputStream in;
    private int left = MAX_LINES;
    private int first;

    Reader(int first, InputStream in) {
      this.first = first;
      this.in = in;
    }

    int status() throws IOException {
      String line = line();
      Matcher matcher = STATUS.matcher(line);
      if (!matcher.matches()) {
        throw new ProtocolException("not a status line of HTTP/1.1");
      }
      return Integer.parseInt(matcher.group(1));
    }

    Map<String, String> headers() throws IOException {
      Map<String, String> headers = new HashMap<>();
      for (String line = line(); !line.isEmpty(); line = line()) {
        int colon = line.indexOf(':');
        String name = line.substring(0, Math.max(0, colon)).toLowerCase(Locale.ROOT);
        if (name.isEmpty() || name.indexOf(' ') >= 0 || name.indexOf('\t') >= 0) {
          throw new ProtocolException("not a header");
        }
        String value = line.substring(colon + 1).strip();
        String before = headers.put(name, value);
        if (name.equals("content-length") && before != null && !before.equals(value)) {
          throw new ProtocolException("two values of Content-Length");
        }
      }
      return headers;
    }

    byte[] body(int status, Map<String, String> headers) throws IOException {
      if (status == 204 || status == 304) {
        return new byte[0];
      }
      String length = headers.get("content-length");
      String coding = headers.get("transfer-encoding");
      if (coding != null) {
        if (length != null || !coding.equalsIgnoreCase("chunked")) {
          throw new ProtocolException("transfer coding not supported");
        }
        return chunks();
      }
      // Without a length, the end of the connection would be the end of the body: it may be half.
      if (length == null || !LENGTH.matcher(length).matches()) {
        throw new ProtocolException("no valid Content-Length");
      }
      return bytes(Integer.parseInt(length), 0);
    }

    private byte[] chunks() throws IOException {
      ByteArrayOutputStream body = new ByteArrayOutputStream();
      while (true) {
        Matcher matcher = CHUNK.matcher(line());
        if (!matcher.matches()) {
          throw new ProtocolException("not the size of a chunk");
        }
        int size = Integer.parseInt(matcher.group(1), 16);
        if (size == 0) {
          headers(); // trailers
          return body.toByteArray();
        }
        body.write(bytes(size, body.size()));
        if (!line().isEmpty()) {
          throw new ProtocolException("a chunk without end");
        }
      }
    }

    private byte[] bytes(int count, int before) throws IOException {
      if (count + before > MAX_BODY) {
        throw new ProtocolException("the answer has more than " + MAX_BODY + " bytes");
      }
      byte[] bytes = in.readNBytes(count);
      if (bytes.length < count) {
        throw new EOFException("the answer is not complete");
      }
      return bytes;
    }

    private String line() throws IOException {
      StringBuilder line = new StringBuilder(64);
      while (true) {
        int b = first >= 0 ? first : in.read();
        first = -1;
        if (b < 0) {
          throw new EOFException("the answer is not complete");
        }
        if (--left < 0) {
          throw new ProtocolException("the head has more than " + MAX_LINES + " bytes");
        }
        if (b == '\n') {
          int end = line.length() - 1;
          if (end < 0 || line.charAt(end) != '\r') {
            throw new ProtocolException("a line without CR");
          }
          return line.substring(0, end);
        }
        line.append((char) b);
      }
    }
  }
}
