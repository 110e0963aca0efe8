package dev.lbd.client;

import java.net.http.HttpClient;

/** LbdHttpClient, with sendAsync. */
class HttpClientAsyncTest extends LibraryTest {
  @Override
  Library library(LbdClient lbd) {
    return Library.async(new LbdHttpClient(lbd));
  }

  @Override
  Library trusting(LbdClient lbd, Certificates certificates) throws Exception {
    HttpClient.Builder settings = HttpClient.newBuilder().sslContext(certificates.context());
    return Library.async(new LbdHttpClient(lbd, settings));
  }
}
