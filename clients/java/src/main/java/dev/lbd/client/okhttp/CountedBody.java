package dev.lbd.client.okhttp;

import dev.lbd.client.Attempt;
import java.io.IOException;
import okhttp3.MediaType;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okio.Buffer;
import okio.BufferedSource;
import okio.ForwardingSource;
import okio.Okio;

/** A body whose request is in flight until it is read to its end, or closed. */
final class CountedBody extends ResponseBody {
  private final ResponseBody body;
  private final BufferedSource source;

  private CountedBody(ResponseBody body, Attempt attempt) {
    this.body = body;
    this.source =
        Okio.buffer(
            new ForwardingSource(body.source()) {
              @Override
              public long read(Buffer sink, long count) throws IOException {
                long n;
                try {
                  n = super.read(sink, count);
                } catch (IOException e) {
                  attempt.close();
                  throw e;
                }
                if (n < 0) {
                  attempt.close();
                }
                return n;
              }

              @Override
              public void close() throws IOException {
                attempt.close();
                super.close();
              }
            });
  }

  /** Returns a response that ends an attempt with its body. */
  static Response count(Response response, Attempt attempt) {
    ResponseBody body = response.body();
    boolean upgraded = response.code() == 101; // to a WebSocket
    // The length is 0 for HEAD, 204 and 304, too.
    if (body == null || upgraded || body.contentLength() == 0) {
      attempt.close();
      return response;
    }
    return response.newBuilder().body(new CountedBody(body, attempt)).build();
  }

  @Override
  public MediaType contentType() {
    return body.contentType();
  }

  @Override
  public long contentLength() {
    return body.contentLength();
  }

  @Override
  public BufferedSource source() {
    return source;
  }
}
