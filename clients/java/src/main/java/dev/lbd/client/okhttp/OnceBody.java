package dev.lbd.client.okhttp;

import java.io.IOException;
import java.util.function.BooleanSupplier;
import okhttp3.MediaType;
import okhttp3.RequestBody;
import okio.BufferedSink;

/**
 * The body of a request that is not idempotent. OkHttp does not send it again when a connection
 * ends without an answer, but does so after an answer that asks for it, such as 401 and 307.
 */
final class OnceBody extends RequestBody {
  private final RequestBody body;
  private final BooleanSupplier answered;

  OnceBody(RequestBody body, BooleanSupplier answered) {
    this.body = body;
    this.answered = answered;
  }

  @Override
  public MediaType contentType() {
    return body.contentType();
  }

  @Override
  public long contentLength() throws IOException {
    return body.contentLength();
  }

  @Override
  public void writeTo(BufferedSink sink) throws IOException {
    body.writeTo(sink);
  }

  @Override
  public boolean isDuplex() {
    return body.isDuplex();
  }

  @Override
  public boolean isOneShot() {
    return body.isOneShot() || !answered.getAsBoolean();
  }
}
