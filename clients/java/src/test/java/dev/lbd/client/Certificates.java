package dev.lbd.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.Key;
import java.security.KeyStore;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/** A key with a certificate that is valid for one name, and signed by itself. */
final class Certificates {
  private static final char[] PASSWORD = "changeit".toCharArray();

  private final KeyStore keys = KeyStore.getInstance("PKCS12");
  private final KeyStore trusted = KeyStore.getInstance("PKCS12");

  /** Makes a key. Name is as in -ext san of keytool: dns:NAME or ip:ADDRESS. */
  Certificates(Path directory, String name) throws Exception {
    Path file = Files.createTempDirectory(directory, "keys").resolve("keys.p12");
    String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
    int status =
        new ProcessBuilder(
                keytool,
                "-J-XX:TieredStopAtLevel=1", // it ends soon
                "-J-XX:+UseSerialGC",
                "-genkeypair",
                "-alias",
                "key",
                "-keyalg",
                "EC",
                "-dname",
                "CN=test",
                "-ext",
                "san=" + name,
                "-ext",
                "bc:c",
                "-validity",
                "2",
                "-storetype",
                "PKCS12",
                "-storepass",
                new String(PASSWORD),
                "-keystore",
                file.toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start()
            .waitFor();
    if (status != 0) {
      throw new IOException("keytool failed");
    }
    try (InputStream in = Files.newInputStream(file)) {
      keys.load(in, PASSWORD);
    }
    trusted.load(null, null);
    trusted.setCertificateEntry("key", keys.getCertificate("key"));
  }

  X509TrustManager trustManager() throws Exception {
    TrustManagerFactory factory =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(trusted);
    return (X509TrustManager) factory.getTrustManagers()[0];
  }

  /** Returns the context of a server with the key, and of clients that trust it. */
  SSLContext context() throws Exception {
    KeyManagerFactory factory =
        KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(keys, PASSWORD);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(factory.getKeyManagers(), new X509TrustManager[] {trustManager()}, null);
    return context;
  }

  Path writeCertificate(Path file) throws Exception {
    return write(file, "CERTIFICATE", keys.getCertificate("key").getEncoded());
  }

  Path writeKey(Path file) throws Exception {
    Key key = keys.getKey("key", PASSWORD);
    return write(file, "PRIVATE KEY", key.getEncoded());
  }

  private static Path write(Path file, String kind, byte[] content) throws IOException {
    String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
    return writeSecret(
        file, "-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n");
  }

  /** Writes a file that other users cannot read. */
  static Path writeSecret(Path file, String text) throws IOException {
    Files.writeString(file, text);
    return Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
  }
}
