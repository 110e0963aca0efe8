package dev.lbd.client.okhttp;

import dev.lbd.client.LbdClient;
import java.net.Proxy;
import okhttp3.OkHttpClient;

/** Makes clients of OkHttp that send requests to the endpoints that lbd picks. */
public final class LbdOkHttp {
  private LbdOkHttp() {}

  /**
   * Returns a client like another one, with the same connection pool and dispatcher, that sends
   * requests to hosts CLUSTER.lbd to the endpoints that lbd picks, and all others as usual.
   *
   * <p>A request that gets no endpoint fails with a {@link dev.lbd.client.LbdException}. The
   * deadline of a request is its call timeout, else that of the {@link LbdClient}; it holds for all
   * tries together. A header Idempotency-Key permits retries of a POST or PATCH. A body that is
   * one-shot or duplex is sent once.
   *
   * <p>Requests to endpoints do not use a proxy. Redirects within a cluster are followed at the
   * same endpoint; others are responses. With https, the certificate of the endpoint has to be
   * valid for the host of the URL.
   *
   * @param client the settings of the new client
   * @param lbd gets the picks
   * @return the new client
   */
  public static OkHttpClient with(OkHttpClient client, LbdClient lbd) {
    EndpointHosts hosts = new EndpointHosts();
    LbdInterceptor interceptor = new LbdInterceptor(lbd, hosts, client.certificatePinner());
    OkHttpClient.Builder builder =
        client
            .newBuilder()
            .addInterceptor(interceptor)
            .addNetworkInterceptor(interceptor::network)
            .dns(hosts.dns(client.dns()))
            .hostnameVerifier(hosts.verifier(client.hostnameVerifier()));
    Proxy proxy = client.proxy();
    builder.proxy(null).proxySelector(hosts.proxies(proxy, client.proxySelector()));
    if (client.x509TrustManager() != null) {
      int timeout = (int) Math.min(Integer.MAX_VALUE, Math.max(1, lbd.connectTimeout().toMillis()));
      builder.sslSocketFactory(
          hosts.sockets(client.sslSocketFactory(), timeout), client.x509TrustManager());
    }
    return builder.build();
  }

  /**
   * Returns a client with the default settings of OkHttp, as {@link #with} does.
   *
   * @param lbd gets the picks
   * @return the client
   */
  public static OkHttpClient create(LbdClient lbd) {
    return with(new OkHttpClient(), lbd);
  }
}
