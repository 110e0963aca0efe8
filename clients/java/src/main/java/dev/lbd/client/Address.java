package dev.lbd.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

/**
 * Where lbd listens.
 *
 * @param socket path of the unix socket, or null
 * @param host host name or address without brackets, for TCP
 * @param port for TCP
 * @param tls makes the TLS connections, or null for connections without TLS
 */
record Address(Path socket, String host, int port, SSLSocketFactory tls) {
  private static final List<Path> SOCKETS =
      List.of(Path.of("/run/lbd.sock"), Path.of("/run/lbd/lbd.sock"));

  /** Returns the address where lbd is if nothing says it. */
  static String byDefault() {
    for (Path path : SOCKETS) {
      try {
        // S_IFMT and S_IFSOCK of <sys/stat.h>
        if (((int) Files.getAttribute(path, "unix:mode") & 0170000) == 0140000) {
          return "unix:" + path;
        }
      } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
        // there is no such file, or there are no sockets on this system
      }
    }
    return "http://localhost:8080";
  }

  /**
   * Returns the address that a text names.
   *
   * @param text unix:PATH, http://HOST:PORT or https://HOST:PORT
   * @param ca PEM file of the certificates that may sign that of lbd; empty for those of the system
   */
  static Address of(String text, String ca) {
    if (text.startsWith("unix:/")) {
      return new Address(
          Path.of(text.substring("unix:".length()).replaceFirst("^//+", "/")), "", 0, null);
    }
    URI uri;
    try {
      uri = URI.create(text);
    } catch (IllegalArgumentException e) {
      throw invalid(text);
    }
    boolean https = "https".equals(uri.getScheme());
    boolean path = uri.getRawPath() != null && !uri.getRawPath().matches("/?");
    if ((!https && !"http".equals(uri.getScheme())) || uri.getHost() == null || path) {
      throw invalid(text);
    }
    if (uri.getRawUserInfo() != null) {
      throw new IllegalArgumentException(
          "lbd: a user in the address is not supported: use a token");
    }
    int port = uri.getPort() >= 0 ? uri.getPort() : https ? 443 : 80;
    String host = uri.getHost().replaceAll("[\\[\\]]", "");
    return new Address(null, host, port, https ? trusting(ca) : null);
  }

  /** Returns the value of the header Host. */
  String hostHeader() {
    return socket != null
        ? "localhost"
        : (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
  }

  private static IllegalArgumentException invalid(String text) {
    return new IllegalArgumentException(
        "lbd: \""
            + text.replaceFirst(".*@", "…@")
            + "\" is not unix:PATH, http://HOST:PORT or https://HOST:PORT");
  }

  private static SSLSocketFactory trusting(String ca) {
    if (ca.isEmpty()) {
      return (SSLSocketFactory) SSLSocketFactory.getDefault();
    }
    try (InputStream file = Files.newInputStream(Path.of(ca))) {
      KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
      store.load(null, null);
      for (Certificate certificate :
          CertificateFactory.getInstance("X.509").generateCertificates(file)) {
        store.setCertificateEntry("ca" + store.size(), certificate);
      }
      TrustManagerFactory trust =
          TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(store);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, trust.getTrustManagers(), null);
      return context.getSocketFactory();
    } catch (IOException | GeneralSecurityException e) {
      throw new IllegalArgumentException("ca: " + ca + ": " + e.getMessage(), e);
    }
  }
}
