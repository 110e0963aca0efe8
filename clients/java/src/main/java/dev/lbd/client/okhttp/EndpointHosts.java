package dev.lbd.client.okhttp;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Proxy;
import java.net.ProxySelector;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.URI;
import java.net.UnknownHostException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.HostnameVerifier;
import javax.net.ssl.SSLSocketFactory;
import okhttp3.Dns;
import okhttp3.HttpUrl;

/**
 * Host names that stand for one endpoint of a cluster, such as lbd-SECRET-0a000007.orders.lbd.
 *
 * <p>OkHttp has one name for where to connect, for which name the certificate has to be valid, and
 * which connections can be used again. These names keep the three apart: the address is in the
 * first label, the name of the server is the rest. The secret keeps URLs from other sources from
 * choosing an address.
 */
final class EndpointHosts {
  private final String prefix;
  private final Pattern pattern;

  EndpointHosts() {
    byte[] secret = new byte[8];
    new SecureRandom().nextBytes(secret);
    prefix = "lbd-" + HexFormat.of().formatHex(secret) + "-";
    pattern = Pattern.compile(prefix + "((?:[0-9a-f]{8}){1,4})\\.(.+)");
  }

  /** Returns the URL for a request to an address, HOST:PORT. */
  HttpUrl at(HttpUrl url, String address) throws UnknownHostException {
    int colon = address.lastIndexOf(':');
    // Addresses of endpoints are IP addresses, so this asks no name server.
    InetAddress ip = InetAddress.getByName(address.substring(0, colon));
    String name = prefix + HexFormat.of().formatHex(ip.getAddress()) + "." + url.host();
    int port = Integer.parseInt(address.substring(colon + 1));
    return url.newBuilder().host(name).port(port).build();
  }

  private boolean isEndpoint(String host) {
    return host != null && host.startsWith(prefix);
  }

  private String serverName(String host) {
    Matcher matcher = pattern.matcher(host);
    return matcher.matches() ? matcher.group(2) : host;
  }

  Dns dns(Dns others) {
    return host -> {
      Matcher matcher = pattern.matcher(host);
      return matcher.matches()
          ? List.of(InetAddress.getByAddress(HexFormat.of().parseHex(matcher.group(1))))
          : others.lookup(host);
    };
  }

  HostnameVerifier verifier(HostnameVerifier others) {
    return (host, session) -> others.verify(serverName(host), session);
  }

  /** Returns proxies for all hosts that are not endpoints: one proxy, or else those of others. */
  ProxySelector proxies(Proxy one, ProxySelector others) {
    return new ProxySelector() {
      @Override
      public List<Proxy> select(URI uri) {
        if (isEndpoint(uri.getHost())) {
          return List.of(Proxy.NO_PROXY);
        }
        return one != null ? List.of(one) : others.select(uri);
      }

      @Override
      public void connectFailed(URI uri, SocketAddress address, IOException error) {
        others.connectFailed(uri, address, error);
      }
    };
  }

  /**
   * Returns a factory of sockets that name the server, and not the endpoint, in their handshake,
   * which waits so many milliseconds for the endpoint, at most. OkHttp sets the timeout of the
   * socket again before each request.
   */
  SSLSocketFactory sockets(SSLSocketFactory others, int handshakeTimeout) {
    return new SSLSocketFactory() {
      @Override
      public Socket createSocket(Socket socket, String host, int port, boolean close)
          throws IOException {
        if (isEndpoint(host)) {
          int timeout = socket.getSoTimeout(); // 0 for none
          socket.setSoTimeout(
              timeout == 0 ? handshakeTimeout : Math.min(timeout, handshakeTimeout));
        }
        return others.createSocket(socket, serverName(host), port, close);
      }

      @Override
      public String[] getDefaultCipherSuites() {
        return others.getDefaultCipherSuites();
      }

      @Override
      public String[] getSupportedCipherSuites() {
        return others.getSupportedCipherSuites();
      }

      // OkHttp does not use the methods that connect.

      @Override
      public Socket createSocket(String host, int port) throws IOException {
        return others.createSocket(host, port);
      }

      @Override
      public Socket createSocket(String host, int port, InetAddress local, int localPort)
          throws IOException {
        return others.createSocket(host, port, local, localPort);
      }

      @Override
      public Socket createSocket(InetAddress host, int port) throws IOException {
        return others.createSocket(host, port);
      }

      @Override
      public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort)
          throws IOException {
        return others.createSocket(host, port, local, localPort);
      }
    };
  }
}
